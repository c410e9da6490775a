"""Writes chat_template_golden.json: chat templates with conversations and what Jinja makes of them, in the environment that chat
templates are written for (trim_blocks and lstrip_blocks on, loop controls, tojson as plain JSON). "error": Jinja refuses.

Usage: chat_template_golden.py      (Debian's python3-jinja2)
"""
import json, os
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception

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
snippets = [
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
cases = []


def add(source, messages, generation):
    variables = {"messages": messages, "add_generation_prompt": generation, "bos_token": "<s>", "eos_token": "</s>"}
    case = {"template": source, "messages": messages, "add_generation_prompt": generation}
    try:
        case["text"] = env.from_string(source).render(**variables)
    except Exception as error:
        case["error"] = str(error)
    cases.append(case)


for source in styles.values():
    for messages in (user, talk, system, talk[:1] * 2, []):
        for generation in (False, True):
            add(source, messages, generation)
for source in snippets:
    add(source, talk, True)
    add(source, named, False)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template_golden.json")
with open(path, "w") as out:
    json.dump(cases, out, ensure_ascii=False, indent=0, separators=(",", ":"))
    out.write("\n")
