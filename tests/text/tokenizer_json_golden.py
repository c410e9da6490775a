"""Writes tokenizer_json_golden.json: small tokenizers in the shapes that checkpoints have (GPT-2/OPT, Llama-3, Qwen2, Llama-2), trained here,
and what the tokenizers library makes of many texts and token sequences with each; then the same for variations of them that use further
building blocks.

Usage: tokenizer_json_golden.py      (pip install tokenizers)
"""
import copy, json, os, random, unicodedata
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
rng = random.Random(7)

PROSE = [
    "The quick brown fox jumps over the lazy dog, and it doesn't look back.", "I'll say we've done what they'd hoped; you're late, I'm sure!",
    "Once upon a time there was a small house by the sea where nobody lived.", "WE'LL SEE, SHE'S GONE, THEY'RE HERE, IT'D WORK",
    "Größe, Straße, über, Äpfel und Öl: süße Grüße aus München.", "L'été dernier, où étaient les élèves? Ça va très bien, merci!",
    "El niño soñó con mañana; ¿qué pasó después? ¡Nada!", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Tiếng Việt có nhiều dấu: ấ ầ ẩ ẫ ậ.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Σίσυφος ΣΊΣΥΦΟΣ",
    "صِف خَلقَ خَودٍ كَمِثلِ الشَمسِ إِذ بَزَغَت", "דג סקרן שט בים מאוכזב ולפתע מצא חברה", "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน", "我能吞下玻璃而不伤身体。今天天气很好，我们去公园。", "いろはにほへと ちりぬるを カタカナ ｶﾀｶﾅ ガギグ 日本語のテキスト",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.", "ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ ᠪᠠᠶᠢᠨᠠ", "ქართული ენა, Հայերեն լեզու, አማርኛ ቋንቋ, தமிழ் மொழி, বাংলা ভাষা",
]
CODE = [
    "def add(a, b):\n    return a + b  # sum\n", "for (int i = 0; i < n; ++i) {\n\tx[i] += y[i] * 2.5f;\n}\n", "SELECT name, count(*) FROM users WHERE id >= 10;",
    "fn main() -> Result<(), Error> { println!(\"{}\", x?); Ok(()) }", "<div class=\"a b\"><p>Text &amp; more</p></div>", "#include <vector>\nstd::vector<int> v{1, 2, 3};\r\n",
    "git commit -m 'fix: it\\'s done' && echo $HOME/*.txt | wc -l", "{\"key\": [1, 2.5e-3, null, true], \"other\": \"\\u00e9\"}", "https://example.org/a/b?c=d&e=%20f#g",
]
NUMBERS = ["1", "12", "123", "1234", "1,234,567.89", "3.14159", "2024-01-31T12:00:00Z", "٣٤٥", "१२३४", "Ⅻ", "½ ²³", "0x1F", "1e-9", "50%", "$9.99", "12345678901234567890", "㊿", "Ⓐ"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "🧑🏿‍🚀", "☃", "✈️", "#️⃣", "🫠", "\U0001F600\u200d"]
SPACES = [" ", "  ", "   ", "        ", "\t", "\t\t ", "\n", "\n\n", "\n \n", "\r\n", "\r\n\r\n", " \n", "\n  ", "\u00a0", "\u3000", "\u2003\u2009", "\u200b", "\u202f", "\x0b\x0c", "\u0085", "\u2028", "\u180e", "\ufeff"]
ODD = ["\x00", "\x01\x02", "\x7f", "\x1b[31m", "\u0301", "e\u0301", "a\u0308\u0301", "A\u030a", "\u1100\u1161\u11a8", "\u212b", "\u2126\u0301", "\ufb01", "ſ", "'ſ", "İstanbul", "\ufffd", "\ufffe", "\U0010ffff",
       "▁", "▁▁a", "Ġ", "Ċ", "<0x41>", "<0xE2>", "a'b", "'s", "'S", "'t've", "''", "don’t", "_", "a_b", "--", "...", "…", "。", "¿?", "\ue000", "𝒜𝓫", "ǅ", "ﷺ", "\u0344", "क्षि", "กำ", "\u0928\u093c"]
SPECIALS = ["</s>", "<s>", "<unk>", "<pad>", "<mask>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\n", "<|endoftext|>",
            "<tool>", "<tool_call>", "<tool", "<|im_", "word", "words", "sword", "café", "cafe\u0301", "  <mask>", "<mask> ", "<|eot_id|>  x", "\n<|eot_id|>\n", "</s></s>", "éé"]
words = [w for line in PROSE for w in line.split()]


def phrase():
    line = rng.choice(PROSE).split(" ")
    start = rng.randrange(len(line))
    return " ".join(line[start:start + rng.randint(1, 4)])


def code():
    line = rng.choice(CODE)
    start = rng.randrange(len(line))
    return line[start:start + rng.randint(3, 18)]


def decomposed():
    return unicodedata.normalize("NFD", rng.choice(words))


pools = [lambda: phrase(), phrase, decomposed, code, lambda: rng.choice(NUMBERS), lambda: rng.choice(EMOJI), lambda: rng.choice(SPACES), lambda: rng.choice(SPACES),
         lambda: rng.choice(ODD), lambda: rng.choice(SPECIALS), lambda: chr(rng.choice([rng.randrange(32, 0x250), rng.randrange(0x250, 0xd800), rng.randrange(0xe000, 0x20000)]))]
texts = ["", " ", "  ", "a", " a", "a ", "Hello world", "Hello  world ", "\n", "aaaaaaaaaaaaaaaa" * 4, " " * 70, "=" * 40, "ab" * 30]
texts += PROSE + CODE + NUMBERS + EMOJI + SPACES + ODD + SPECIALS
texts += [s + "x" for s in SPACES] + ["x" + s for s in SPACES] + ["x" + s + "y" for s in SPACES] + ["1" + s + "2" for s in SPACES]
seen = set(texts)
while len(seen) < 2000:
    text = "".join(rng.choice(pools)() for _ in range(rng.choice([1, 2, 2, 3, 4])))
    if len(text) <= 28 and text not in seen:
        seen.add(text)
        texts.append(text)
texts = list(dict.fromkeys(texts))
assert len(texts) == 2000

corpus = PROSE * 4 + CODE * 3 + NUMBERS + ["The dog and the fox and the sea, there was a time when the house was small."] * 3
GPT2_ALPHABET = pre_tokenizers.ByteLevel.alphabet()
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def train(tokenizer, size, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=2)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def byte_level(pre, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer if normalizer else tokenizer.normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, 700, GPT2_ALPHABET)


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


def gpt2():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_special_tokens([special("</s>"), special("<pad>"), special("<mask>", lstrip=True), special("<|endoftext|>")])
    t.post_processor = processors.TemplateProcessing(single="</s> $A", pair="</s> $A </s> $B", special_tokens=[("</s>", t.token_to_id("</s>"))])
    file = json.loads(t.to_str())
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    return file


def llama3():
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    t.add_special_tokens([special("<|begin_of_text|>"), special("<|end_of_text|>"), special("<|eot_id|>", rstrip=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("<tool>", normalized=False), AddedToken("<tool_call>", normalized=False)])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    file = json.loads(t.to_str())
    file["model"]["ignore_merges"] = True
    del file["model"]["merges"][40:80]  # so that some words are in the vocabulary that no merge makes
    return file


def qwen2():
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), normalizers.NFC())
    t.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("cafe\u0301"), AddedToken("éé", normalized=False)])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(t.to_str())


def llama2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, 600, [])
    trained = json.loads(t.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    pieces += [p for p in sorted(trained["vocab"], key=trained["vocab"].get) if ord(p[0]) < 0x600 or p[0] == "▁" or rng.random() < .5]
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = [pair for pair in trained["merges"] if all(p in vocab for p in (*pair, "".join(pair)))]
    t = Tokenizer(models.BPE(vocab, [tuple(pair) for pair in merges], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([special("<unk>"), special("<s>"), special("</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return json.loads(t.to_str())


files = {"gpt2": gpt2(), "llama3": llama3(), "qwen2": qwen2(), "llama2": llama2()}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def metaspace(**settings):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True} | settings


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def pre(*steps):
    return {"pre_tokenizer": sequence("pretokenizers", *steps)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
variations = [  # name, base, what replaces the base's parts; model's parts after a dot
    ("mistral", "llama2", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="first", split=False), "decoder": metaspace(prepend_scheme="first")}),
    ("metaspace", "llama2", {"normalizer": None, "pre_tokenizer": metaspace(), "decoder": metaspace(prepend_scheme="never")}),
    ("metaspace never", "llama2", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="never"), "decoder": None}),
    ("gemma", "llama2", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"),
                         "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})}),
    ("unknown", "llama2", {"model.byte_fallback": False, "normalizer": None, "pre_tokenizer": metaspace()}),
    ("unknown apart", "llama2", {"model.byte_fallback": False, "model.fuse_unk": False, "normalizer": None}),
    ("unknown dropped", "llama2", {"model.byte_fallback": False, "model.unk_token": None}),
    ("prefix space", "gpt2", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}),
    ("deepseek", "gpt2", pre(split({"Regex": "[\r\n]"}, "Isolated"), split({"Regex": "\\s?\\p{L}+"}, "Isolated"), split({"Regex": "\\s?\\p{P}+"}, "Isolated"),
                             split({"Regex": "[一-龥ࠀ-一가-퟿]+"}, "Isolated"), {"type": "Digits", "individual_digits": True}, BYTES)),
    ("digits", "gpt2", pre({"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "Contiguous"}, BYTES)),
    ("removed", "gpt2", pre(split({"Regex": "\\s+"}, "Removed"), BYTES)),
    ("next", "gpt2", pre(split({"Regex": "\\s"}, "MergedWithNext"), BYTES)),
    ("previous", "gpt2", pre(split({"Regex": "\\w"}, "MergedWithPrevious"), BYTES)),
    ("inverted", "gpt2", pre(split({"Regex": "\\w+|\\d"}, "Contiguous", True), BYTES)),
    ("empty matches", "gpt2", pre(split({"Regex": "(?=\\d)|a*"}, "Isolated"), BYTES)),
    ("class", "gpt2", pre(split({"Regex": "[\\h\\v]+|[^\\w\\u00a0]|\\S\\H"}, "Isolated"), BYTES)),
    ("forms", "qwen2", {"normalizer": sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True})}),
    ("decomposed", "qwen2", {"normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "Replace", "pattern": {"Regex": "[\\s]{2,}"}, "content": " "})}),
]


def varied(base, changes):
    file = copy.deepcopy(files[base])
    for key, value in changes.items():
        part, _, option = key.rpartition(".")
        (file[part] if part else file)[option] = value
    return file


def golden_of(file, some_texts, num_sequences):
    t = Tokenizer.from_str(json.dumps(file))
    size = t.get_vocab_size()
    ids = [t.encode(text, add_special_tokens=False).ids for text in some_texts]
    before = t.encode("").ids
    before = before[:len(before) - len(t.encode("", add_special_tokens=False).ids)]
    assert all(t.encode(text).ids == before + i for text, i in zip(some_texts, ids))
    skipped = [t.decode(i, skip_special_tokens=True) for i in ids]
    kept = [t.decode(i, skip_special_tokens=False) for i in ids]
    sequences = []
    for _ in range(num_sequences):
        high = rng.choice([size, size, 260])
        sequence = [rng.randrange(size - 8, size) if rng.random() < .1 else rng.randrange(high) for _ in range(rng.randint(1, 8))]
        sequences.append([sequence, t.decode(sequence, skip_special_tokens=True), t.decode(sequence, skip_special_tokens=False)])
    return {"before": before, "ids": ids,  # null below: the text itself; the same as with special tokens
            "kept": [None if k == text else k for k, text in zip(kept, some_texts)], "skipped": [None if k == s else s for k, s in zip(kept, skipped)],
            "sequences": sequences}


golden = {"texts": texts, "tokenizers": [], "variations": []}
for name, file in files.items():
    golden["tokenizers"].append({"name": name, "file": file} | golden_of(file, texts, 300))
for i, (name, base, changes) in enumerate(variations):
    some = {"first": i % 3, "step": 3, "end": 330}
    golden["variations"].append({"name": name, "base": base, "changes": changes, "texts": some} |
                                golden_of(varied(base, changes), texts[some["first"]:some["end"]:some["step"]], 15))


def lines(value, depth):  # one line for each small thing
    if depth == 0 or not value or not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict):
        return "{" + ",\n".join(json.dumps(k) + ":" + lines(v, depth - 1) for k, v in value.items()) + "}"
    return "[" + ",\n".join(lines(v, depth - 1) for v in value) + "]"


with open(os.path.join(here, "tokenizer_json_golden.json"), "w") as out:
    out.write(lines(golden, 3) + "\n")
