"""Writes tokenizer_golden.json: what SentencePiece itself makes of many texts and of many token sequences, with the shipped
model and with two small ones that are trained here for their settings (user-defined symbols, collapsed spaces, no byte fallback).

Usage: tokenizer_golden.py      (Debian's python3-sentencepiece)
"""
import base64, io, json, os, random
import sentencepiece as spm

here = os.path.dirname(os.path.abspath(__file__))
shipped = os.path.join(here, "../../models/tiny-stories/tokenizer.model")
random.seed(5)
words = "the a cat dog ran runs running under over garden gate 12 3.5 café naïve one two three and or not; (so) \"why?\"".split()
corpus = [" ".join(random.choices(words, k=8)) for _ in range(400)]


def trained(**settings):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=out, model_type="bpe", normalization_rule_name="identity",
                                   minloglevel=2, hard_vocab_limit=False, **settings)
    return out.getvalue()


models = {
    "tiny-stories": open(shipped, "rb").read(),
    "symbols": trained(vocab_size=120, user_defined_symbols=["<tool>", "<tool>!", "\n\n", "cat"], remove_extra_whitespaces=True),
    "plain": trained(vocab_size=400, byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True),
}
texts = ["", " ", "   ", "a", " a", "a ", "  a  b  ", "Once upon a time", "the cat<tool>!ran<tool>", "cat", "concat cats", "x\n\ny\n\n\nz", "\t tab",
         "café naïve", "cafe\u0301", "☃ snow ☃☃", "😀😀 👩‍👩‍👧", "日本語のテキスト", "\u2581already\u2581marked \u2581", "12 34.5 1,000", "a" * 60, "ab" * 40,
         "the the the  the", "<s></s><unk><0x41>", "\u0000zero\u0000", "\u00a0nbsp\u3000wide", "garden gate under over running" * 4, "¿qué? ¡sí!", "ﬁne ½ Å"]
alphabet = list("abcdeghinorstuv   .,?!\"'<>\n") + ["é", "☃", "😀", "the", "cat", " the", "<tool>", "ing"]
texts += ["".join(random.choices(alphabet, k=random.randint(1, 40))) for _ in range(150)]
golden = []
for name, data in models.items():
    sp = spm.SentencePieceProcessor(model_proto=data)
    size = sp.get_piece_size()
    sequences = [[random.randrange(size if random.random() < .6 else min(size, 259)) for _ in range(random.randrange(10))] for _ in range(150)]
    golden.append({"name": name, "model": "" if name == "tiny-stories" else base64.b64encode(data).decode(), "size": size,
                   "encode": [[text, sp.encode(text)] for text in texts], "decode": [[ids, sp.decode(ids)] for ids in sequences]})
with open(os.path.join(here, "tokenizer_golden.json"), "w") as out:
    json.dump(golden, out, ensure_ascii=True, separators=(",", ":"))
    out.write("\n")
