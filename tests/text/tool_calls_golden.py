"""Writes tool_calls_golden.json: for each format in which models call tools a chat template and 200 conversations, with hashes (FNV-1a, 64
bits, of UTF-8) of what the transformers library renders of them: with the last message, and up to it, where a model would write that
message. The first conversations have the texts too. The templates do what those of well-known models do, written anew and shortened.

Usage: tool_calls_golden.py      (pip install transformers jinja2)
"""
import json, os, random
from transformers.utils import chat_template_utils

CONVERSATIONS = 200
WITH_TEXT = 3

qwen = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\nAnswer with <tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}
        THINKING
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if not loop.first or message.content %}
                {{- '\\n' }}
            {%- endif %}
            {%- if tool_call.function %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' + (tool_call.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
thinking = """{%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}"""

llama = """{{- bos_token }}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if messages[0].role == 'system' %}
    {{- messages[0].content | trim }}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' }}
        {%- if loop.first and tools is not none %}
            {{- 'Respond with {"name": function name, "parameters": dictionary of arguments}.\\n\\n' }}
            {%- for t in tools %}
                {{- t | tojson(indent=4) }}
                {{- '\\n\\n' }}
            {%- endfor %}
        {%- endif %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {%- for call in message.tool_calls %}
            {%- set call = call.function %}
            {{- '{"name": "' + call.name + '", "parameters": ' }}
            {{- call.arguments | tojson }}
            {{- '}' }}
            {%- if not loop.last %}{{- '; ' }}{% endif %}
        {%- endfor %}
        {{- '<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

mistral = """{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- set loop_messages = messages[1:] if system else messages %}
{%- set user_messages = loop_messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and (message == user_messages[0]) %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != 'return' %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ', ' }}
                    {%- endif %}
                {%- endfor %}
                {{- '}}' }}
                {%- if not loop.last %}{{- ', ' }}{% else %}{{- ']' }}{% endif %}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + (system + '\\n\\n' if system and message == user_messages[0] else '') + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {%- if message.content %}
            {{- message.content + '\\n' }}
        {%- endif %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ', ' }}{% else %}{{- ']' + eos_token }}{% endif %}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}
        {{- message.content | trim + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

granite = """{%- if tools %}
    {{- '<|start_of_role|>available_tools<|end_of_role|>\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {%- if not loop.last %}
            {{- '\\n\\n' }}
        {%- endif %}
    {%- endfor %}
    {{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {{- '<|start_of_role|>system<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- elif message['role'] == 'user' %}
        {{- '<|start_of_role|>user<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- elif message['role'] == 'assistant' and message.tool_calls %}
        {{- '<|start_of_role|>assistant<|end_of_role|>' + (message.content or '') }}
        {{- '<|tool_call|>' + message.tool_calls | map(attribute='function') | list | tojson + '<|end_of_text|>\\n' }}
    {%- elif message['role'] == 'assistant' %}
        {{- '<|start_of_role|>assistant<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- elif message['role'] == 'tool' %}
        {{- '<|start_of_role|>tool_response<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- endif %}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}"""

phi = """{%- for message in messages %}
    {%- if message.role == 'system' or (loop.first and tools) %}
        {{- '<|system|>' + (message.content if message.role == 'system' else 'You call functions.') }}
        {%- if tools %}
            {{- '<|tool|>' + tools | tojson + '<|/tool|>\\nWrite functools[{"name": "f", "arguments": {}}].' }}
        {%- endif %}
        {{- '<|end|>' }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '<|user|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|tool_response|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|assistant|>' + (message.content or '') }}
        {%- if message.tool_calls %}
            {{- 'functools[' }}
            {%- for call in message.tool_calls %}
                {{- {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
                {%- if not loop.last %}{{- ', ' }}{% endif %}
            {%- endfor %}
            {{- ']' }}
        {%- endif %}
        {{- '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}"""

harmony = """{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}
{%- if tools %}
    {{- '<|start|>developer<|message|># Tools\\n\\nnamespace functions {' }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- '\\n// ' + tool.description + '\\ntype ' + tool.name + ' = (_: {' }}
        {%- for name, spec in tool.parameters.properties.items() %}
            {{- name + ('' if name in tool.parameters.required else '?') + ': ' + spec.type + ', ' }}
        {%- endfor %}
        {{- '}) => any;' }}
    {%- endfor %}
    {{- '\\n}<|end|>' }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|start|>assistant' }}
        {%- set thinking = message.thinking or message.reasoning_content %}
        {%- if thinking %}
            {{- '<|channel|>analysis<|message|>' + thinking + '<|end|><|start|>assistant' }}
        {%- endif %}
        {%- if message.content %}
            {{- '<|channel|>' + ('commentary' if message.tool_calls else 'final') + '<|message|>' + message.content }}
            {{- '<|end|><|start|>assistant' if message.tool_calls else '<|return|>' }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function %}
            {%- if loop.index is odd %}
                {{- ' to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
            {%- else %}
                {{- '<|channel|>commentary to=functions.' + call.name + ' <|constrain|>json<|message|>' }}
            {%- endif %}
            {{- call.arguments | tojson + '<|call|>' }}
            {{- '' if loop.last else '<|start|>assistant' }}
            {%- set last.name = call.name %}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + message.content | tojson + '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant' }}
{%- endif %}"""

# Template, what ends a message, how many calls a message may have, whether text may stand before them, whether the model reasons.
formats = {
    "hermes": (qwen.replace("THINKING\n", ""), "<|im_end|>\n", 3, True, False),
    "hermes with reasoning": (qwen.replace("THINKING", thinking), "<|im_end|>\n", 3, True, True),
    "llama3_json": (llama, "<|eot_id|>", 3, False, False),
    "mistral": (mistral, "</s>", 3, True, False),
    "granite": (granite, "<|end_of_text|>\n", 3, True, False),
    "phi4_mini_json": (phi, "<|end|>", 3, True, False),
    "openai with reasoning": (harmony, "", 3, True, True),
}

rng = random.Random(20)
words = ["sun", "Köln", "a\"b", "it's", "C:\\x", "{", "}", "]", "<b>", "</tool_call>", "☃", "𝄞", "line\nbreak", "tab\t", "null", "[1]", "é", "\u007f", "&", "1e5"]


def text(count=2):
    return " ".join(rng.choice(words) for _ in range(rng.randint(1, count)))


def said():
    return rng.choice(["Let me look.", "Sure, Köln it is", "I see: 1 < 2 & 3", "Hm {really}?", "é☃ ok", "Two\nlines"])


def value(depth=0):
    kind = rng.randrange(9 if depth < 2 else 6)
    if kind == 0: return rng.choice([True, False, None])
    if kind == 1: return rng.choice([0, -1, 7, 2**40, 1.5, -0.25, 1e-07, 1e+22])
    if kind < 6: return text()
    if kind == 6: return [value(depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(words): value(depth + 1) for _ in range(rng.randrange(3))}


def call(tools, number):
    function = rng.choice(tools)["function"]
    arguments = {name: value() for name in function["parameters"]["properties"]}
    order = list(arguments)
    rng.shuffle(order)  # the client's order, which templates print
    return {"id": f"call{number:05}", "type": "function", "function": {"name": function["name"], "arguments": {name: arguments[name] for name in order}}}


def tool(number):
    names = rng.sample(["zone", "city", "days", "raw", "unit"], rng.randint(0, 3))
    properties = {name: rng.choice([{"type": "string", "description": rng.choice(["Where \"exactly\"", "any"])}, {"type": "array", "items": {"type": "integer"}}, {"type": "object"}])
                  for name in names}
    function = {"name": rng.choice(["weather", "get_time", "find-it", "a.b"]) + str(number), "description": "Says what \u2026 is"}
    function["parameters"] = {"type": "object", "properties": properties, "required": sorted(names)[:1]}
    return {"type": "function", "function": function}


def assistant(tools, max_calls, may_say, reasons, number):
    message = {"role": "assistant"}
    count = rng.randint(0, max_calls)
    if reasons and rng.random() < 0.7: message["reasoning_content"] = rng.choice(["hm", "Let me\n\nthink <b> {", "so </thin"])
    if count == 0: return {**message, "content": said()}
    message["content"] = said() if may_say and rng.random() < 0.4 else None
    return {**message, "tool_calls": [call(tools, number * 10 + i) for i in range(count)]}


def conversation(max_calls, may_say, reasons):
    tools = [tool(i) for i in range(rng.randint(1, 2))]
    messages = [{"role": "system", "content": "Be brief."}] if rng.random() < 0.4 else []
    messages.append({"role": "user", "content": "What of " + text(2) + "?"})
    for turn in range(rng.randint(0, 2)):
        messages.append(assistant(tools, max_calls, may_say, reasons, turn))
        for made in messages[-1].get("tool_calls", []):
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": rng.choice(["21 °C", '{"a": [1, "b"]}', "none"])})
        if "tool_calls" not in messages[-2] and messages[-1]["role"] == "assistant": messages.append({"role": "user", "content": "And?"})
    return tools, messages + [assistant(tools, max_calls, may_say, reasons, 9)]


def fnv(data):
    state = 0xCBF29CE484222325
    for byte in data.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


golden = {}
for name, (template, end, max_calls, may_say, reasons) in formats.items():
    compiled = chat_template_utils._compile_jinja_template(template)
    cases = []
    for number in range(CONVERSATIONS):
        tools, messages = conversation(max_calls, may_say, reasons)
        given = {"tools": tools, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
        whole = compiled.render(messages=messages, add_generation_prompt=False, **given)
        prompt = compiled.render(messages=messages[:-1], add_generation_prompt=True, **given)
        assert whole.startswith(prompt) and whole.endswith(end), (name, prompt, whole)
        case = {"tools": tools, "messages": messages, "prompt_hash": fnv(prompt), "whole_hash": fnv(whole)}
        if number < WITH_TEXT: case["whole"] = whole
        cases.append(case)
    golden[name] = {"template": template, "end": end, "cases": cases}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tool_calls_golden.json")
with open(path, "w") as out:
    for name, entry in golden.items():  # one line for each case
        out.write(("{" if name == "hermes" else ",") + json.dumps(name) + ":{\"template\":" + json.dumps(entry["template"]) + ",\"end\":" + json.dumps(entry["end"]) + ",\"cases\":[\n")
        out.write(",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in entry["cases"]) + "]}\n")
    out.write("}\n")
