"""Writes chat_template_golden.json: chat templates with conversations and what Jinja makes of them, in the environment that the transformers
library renders chat templates in, at a fixed time. "error": Jinja refuses.

Usage: chat_template_golden.py      (pip install transformers jinja2)
"""
import datetime, json, os
from transformers.utils import chat_template_utils


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 0, 0)


chat_template_utils.datetime = FixedTime

user = [{"role": "user", "content": "Hello, how are you?"}]
talk = [{"role": "user", "content": "  Hi!\n"}, {"role": "assistant", "content": "Hello 'you'"}, {"role": "user", "content": "Say \"é☃\" <b>"}]
system = [{"role": "system", "content": "Be brief."}] + talk
named = [{"role": "user", "content": "x", "flags": [True, None, 1.5], "n": 3, "name": "Ann"}]  # keys behind content: sorted

# The styles that chat models use, written for this test.
styles = {
    "join": "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}",
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "inst": """{% if messages[0]['role'] == 'system' %}
  {% set rest = messages[1:] %}
  {% set intro = messages[0]['content'] %}
{% else %}
  {% set rest = messages %}
  {% set intro = false %}
{% endif %}
{% for message in rest %}
  {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{ raise_exception('roles must alternate') }}
  {% endif %}
  {% if loop.index0 == 0 and intro != false %}
    {% set content = '<<SYS>>\\n' + intro + '\\n<</SYS>>\\n\\n' + message['content'] %}
  {% else %}
    {% set content = message['content'] %}
  {% endif %}
  {% if message['role'] == 'user' %}
    {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
  {% elif message['role'] == 'assistant' %}
    {{- ' ' + content.strip() + ' ' + eos_token }}
  {% endif %}
{% endfor %}""",
    "headers": """{{- bos_token }}
{%- set ns = namespace(seen=false, count=0) -%}
{%- for message in messages %}
  {%- if message.role == "system" and not ns.seen %}{% set ns.seen = true %}{% endif %}
  {%- set ns.count = ns.count + 1 %}
  {{- '<|start|>' ~ message.role ~ '<|end|>\\n\\n' ~ message.content | trim ~ '<|eot|>' }}
{%- endfor %}
{{- ns.count ~ ' ' ~ ns.seen }}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\\n\\n' }}{% endif %}
""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
}

# What the templates of well-known models do, written anew and shortened.
models = {
    "llama-3.1": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to these functions.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
            {%- endfor %}
            {{- ")" }}
        {%- else %}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "llama-3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
               "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
               "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "qwen2.5": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n{\\"name\\": <function-name>}<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif (message.tool_calls is defined and message.tool_calls is not none) %}
        {{- "[TOOL_CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma-2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
               "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
               "{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
               "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
               "{{'<start_of_turn>model\n'}}{% endif %}",
    "macros": """{%- macro json_to_type(spec, depth=0) %}
    {%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
    {%- if basic[spec.type] is defined %}
        {{- basic[spec.type] }}
    {%- elif spec.type == "array" %}
        {{- "list[" + json_to_type(spec['items'], depth=depth + 1) + "]" }}
    {%- elif spec.type == "object" %}
        {{- "dict[str, " ~ depth ~ "]" }}
    {%- else %}
        {{- "Any" }}
    {%- endif %}
{%- endmacro %}
{%- for tool in tools or [] %}
    {{- tool.function.name + "(" }}
    {%- for name, spec in tool.function.parameters.properties|items %}
        {{- name + ": " + json_to_type(spec) }}
        {%- if not loop.last %}, {% endif %}
    {%- endfor %}
    {{- ")\\n" }}
{%- endfor %}
{%- set head %}
{{ messages|length }} messages, {{ messages|map(attribute='role')|join('/') }}
{% endset %}
{{- head|upper }}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}
    {%- else %}
        {{- "<" ~ message.role ~ ">" ~ message.content }}
    {%- endif %}
{%- endfor %}""",
    "deepseek": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}"
                "{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
                "{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}"
                "{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}"
                "{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
                "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}",
    "phi-3": "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}"
             "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
}
schema = {"properties": {"city": {"description": "Where \"exactly\"", "type": "string"}, "days": {"items": {"type": "integer"}, "type": "array"}, "raw": {"type": "object"}}, "type": "object"}
tools = [{"function": {"description": "Says how it will be", "name": "weather", "parameters": schema}, "type": "function"},
         {"function": {"name": "now", "parameters": {"properties": {}, "type": "object"}, "return": {"type": "string"}}, "type": "function"}]
call = {"function": {"arguments": {"city": "Köln", "days": [1, 2]}, "name": "weather"}, "id": "abcdefghi", "type": "function"}
calls = talk[:1] + [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "21 °C"}, {"role": "assistant", "content": "Warm."}, talk[2]]
thinking = talk[:1] + [{"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, {"role": "user", "content": "ok"}, {"role": "assistant", "content": "<think>x</think>Done"}]
conversations = [(user, {}), (talk, {}), (system, {}), (calls, {"tools": tools}), (talk, {"tools": tools, "tools_in_user_message": False}), (thinking, {"enable_thinking": False}),
                 (user, {"builtin_tools": ["code_interpreter", "search"], "date_string": "1 Jan 2000"}), ([], {}), (talk[:1] * 2, {"tools": tools})]
snippets = [
    "{% macro f(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(1, c=3) }}{{ f(a=4, b=5) }}{{ f() }}{{ f(1)|length }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% set x = 1 %}{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% set y = 2 %}{{ f() }}",
    "{% for i in [1, 2] %}{% macro f() %}{{ x }}{% endmacro %}{% set x = i %}{{ f() }}{% endfor %}|{{ f is defined }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a) %}", "{% set x %}a{{ 1 }}b{% endset %}{{ x|upper }}{{ x is string }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% generation %}x{% endgeneration %}", "{{ strftime_now('%Y-%m-%d %H:%M, %A %j') }}", "{{ strftime_now is defined }} {{ raise_exception is callable }} {{ 1 is callable }}",
    "{{ [0, 1, '', 'a']|select|list }} {{ [0, 1, '', 'a']|reject|list }} {{ [1, 2, 3]|select('odd')|list }} {{ [1, 2, 3]|select('gt', 1)|list }} {{ ['a', 1]|reject('string')|list }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'in', ['user'])|list|length }} {{ messages|selectattr('name')|list|length }} {{ messages|selectattr('name', 'defined')|map(attribute='name')|list }}",
    "{{ [' a ', 'b ']|map('trim')|join('-') }} {{ ['a']|map('upper')|first }} {{ [[1, 2], []]|map('length')|list }} {{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }} {{ [{}]|map(attribute='a', default=7)|list }}",
    "{{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge(2) }} {{ 'a' is in('abc') }} {{ 'a' is in ['b'] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is upper }} {{ 3 is le 2 }} {{ 3 is greaterthan 2 }}",
    "{{ 'a-b-c'.split('-', 1) }} {{ 'a-b'.split('-', maxsplit=0) }} {{ 'a-b-c'.split('-', 5) }}", "{{ [1]|tojson(2) }} {{ [1]|tojson(indent=none) }}", "{{ tools is none }} {{ documents is defined }} {{ tools is defined }}", "{{ [1]|select('nosuch')|list }}",
    "plain text\n", "a\n\n", "x{# comment #}y", "x {#- c -#} y", "a\r\nb\r\n", "{{ 'tab\\tnl\\nquote\\'\\u00e9\\x41' }}",
    "  {% if true %}\n  kept\n  {% endif %}\nend", "  {%+ if true %}x{% endif +%}\ny", "a  {%- if true -%}  b  {%- endif -%}  c", "{{ 1 }}\n{{ 2 -}}\n{{- 3 }}",
    "a {% if true %} b {% endif %} c\n{% if true %}\nd{% endif %}", "{# c #}\n{# d #}x", "   {# c #}   \nx", "{%- for x in [1,2] %}\n{{ x }}\n{%- endfor %}\n",
    "{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 * 1.5 }} {{ (1 + 2) * 3 }} {{ -3|string + 'x' }}",
    "{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 2 >= 2 }} {{ 'a' != 'b' }} {{ [1, 'a'] == [1, 'a'] }} {{ {'a': 1} == {'a': 1.0} }}",
    "{{ 'a' in 'cat' }} {{ 3 in [1, 2] }} {{ 'x' not in 'cat' }} {{ 'role' in messages[0] }} {{ 'zzz' in messages[0] }} {{ 'q' in nothing }}",
    "{{ true and 'x' }} {{ '' or 'y' }} {{ not '' }} {{ not true or true }} {{ none or false }} {{ 1 and 0 and 2 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }} {{ 1 ~ 2 + 3 ~ 4 if false else 'no' }}", "{{ 'x' if messages|length > 1 else 'y' }}{{ 'z' if false }}",
    "{{ nothing }}|{{ nothing is defined }}|{{ messages is defined }}|{{ nothing is not defined }}|{{ nothing|default('d') }}|{{ ''|default('e', true) }}|{{ ''|default('e') }}",
    "{{ none is none }} {{ 'a' is string }} {{ messages is iterable }} {{ messages[0] is mapping }} {{ 1 is number }} {{ 1.5 is float }} {{ true is boolean }} {{ 3 is odd }} {{ 4 is even }} {{ 'a' is sequence }} {{ 1 is integer }} {{ false is false }} {{ 1 is true }}",
    "{{ 'a' is eq 'a' }} {{ 'a' is equalto('b') }} {{ not 'a' is string }}",
    "{{ '  x y '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'aBc'|upper }}{{ 'aBc'|lower }}{{ 'hello wORLD'|capitalize }}{{ 'hello wORLD-x'|title }}",
    "{{ 'é☃'|length }} {{ [1,2,3]|length }} {{ messages[0]|length }} {{ ''|count }} {{ nothing|length }}",
    "{{ [1, 'a', none, true, 1.5, {'k': 'it\\'s'}] }} {{ 'x\\n' }} {{ ['x\\n', \"it's\", 'q\"'] }}",
    "{{ messages|tojson }}", "{{ messages[0]|tojson(indent=2) }}", "{{ [] | tojson }}{{ {} | tojson(indent=4) }}", "{{ {'a': [1, 2.5, none], 'b': 'é\"\\\\\\n<'}|tojson }}", "{{ 'x' | tojson }}",
    "{{ [1,2]|join(', ') }} {{ ['a','b']|join }} {{ messages|first is mapping }} {{ [1,2]|last }} {{ [3,4]|first }} {{ 'abc'|first }} {{ []|first }}",
    "{{ 'a-b-c'.split('-') }} {{ ' a  b '.split() }} {{ 'a-b'.replace('-', '+') }} {{ 'a-b'|replace('-', '+') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }}",
    "{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'Ab'.upper() }}{{ 'Ab'.lower() }}{{ 'a b'.title() }}",
    "{{ 'a,b'.split(',')[-1] }} {{ 'abc'[0] }} {{ 'a☃c'[1] }} {{ 'abc'[-1] }} {{ [1,2,3][-2] }} {{ 'abc'[9] }}|{{ messages[7] is defined }}",
    "{{ [1,2,3,4][1:] }} {{ [1,2,3,4][:-1] }} {{ [1,2,3,4][1:3] }} {{ [1,2,3,4][::2] }} {{ [1,2,3,4][::-1] }} {{ 'a☃cd'[1:3] }} {{ [1,2][5:] }} {{ [1,2,3][-2:] }} {{ [1,2,3][10:0:-1] }}",
    "{{ messages[0].get('zzz') }} {{ messages[0].get('zzz', 'd') }} {{ messages[0].keys()|list }} {{ messages[0]['role'] }} {{ messages[0].role }}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in {'a': 1}|items %}{{ k ~ v }}{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}{{ loop.nextitem.role if loop.nextitem is defined else '-' }};{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.role }}{% else %}none{% endfor %}", "{% for m in [] %}x{% else %}empty{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ range(3)|list }} {{ range(1, 6, 2)|list }} {{ range(3, 0, -1)|list }}",
    "{% for i in [1,2] %}{% for j in [3,4] %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=1, l=[]) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}",
    "{% if false %}a{% elif none %}b{% elif 1 %}c{% else %}d{% endif %}{% if 0 %}x{% else %}y{% endif %}",
    "{{ 'abc' | upper | lower | length + 1 }} {{ ('a' ~ 'b') | upper }} {{ -1 | string }} {{ '5'|int + 1 }} {{ 'x'|int }} {{ 3.9|int }}",
    "{{ \"double\" 'single' }} {{ (1, 2)|length }}{{ (1)}} {{ {'a': {'b': 'deep'}}['a']['b'] }} {{ {'a': {'b': 'deep'}}.a.b }}",
    "{{ 'a' if 1 else 'b' if 0 else 'c' }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ {\"a\": {\"b\": 1}}[\"a\"] }}", "{{ 'x'|upper ~ 'y' }} {{ 2 * 'é☃'|length }} {{ not 1 == 2 }}",
    "{{ [3,1,2]|reverse|list }} {{ 'abc'|reverse }} {{ 'abc'|list }} {{ messages[0].content|safe }}", "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}",
    "{{ raise_exception('only users, please') }}", "{{ nothing.x }}", "{{ nothing['x'] }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 // 0 }}", "{{ [1] < 2 }}", "{% for x in 3 %}{% endfor %}",
    "{% if true %}", "{{ 'open }}", "{{ }}", "{% for x %}{% endfor %}", "{% endif %}", "{{ 1 +* 2 }}", "{# open", "{% set ns.x = 1 %}", "{{ 'a' is nosuchtest }}", "{{ 'a'|nosuchfilter }}",
]
golden = {"templates": [], "conversations": [], "cases": []}


def number_of(thing, things):
    if thing not in things:
        things.append(thing)
    return things.index(thing)


def add(source, messages, generation, variables={}):
    case = {"template": number_of(source, golden["templates"]), "conversation": number_of(messages, golden["conversations"]), "add_generation_prompt": generation}
    if variables:
        case["variables"] = variables
    given = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"} | variables
    try:
        case["text"] = chat_template_utils._compile_jinja_template(source).render(messages=messages, add_generation_prompt=generation, **given)
    except Exception as error:
        case["error"] = str(error)
    golden["cases"].append(case)


for source in styles.values():
    for messages in (user, talk, system, talk[:1] * 2, []):
        for generation in (False, True):
            add(source, messages, generation)
for source in models.values():
    for messages, variables in conversations:
        add(source, messages, len(messages) % 2 == 1, variables)
for source in snippets:
    add(source, talk, True)
    add(source, named, False)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template_golden.json")
with open(path, "w") as out:
    for key, entries in golden.items():  # one line for each
        out.write(("{" if key == "templates" else ",") + json.dumps(key) + ":[\n")
        out.write(",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries) + "]\n")
    out.write("}\n")
