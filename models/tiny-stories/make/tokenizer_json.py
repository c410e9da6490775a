"""Writes tokenizer.json: the SentencePiece model beside it in the format of the tokenizers library, which AutoTokenizer.from_pretrained reads without
sentencepiece. Before it writes, it holds the two libraries against each other on the golden texts, the held-out stories and random strings.

Usage: tokenizer_json.py      (pip install tokenizers sentencepiece)
"""
import json
import pathlib
import random

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

folder = pathlib.Path(__file__).parent.parent
source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
size = source.get_piece_size()
vocab = {source.id_to_piece(i): i for i in range(size)}

# SentencePiece merges whichever pair makes the piece with the best score; here each pair has its rank in a list.
merges = []
for piece, number in vocab.items():
    if source.is_byte(number) or source.is_control(number) or source.is_unknown(number):
        continue
    splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
    merges += [(-source.get_score(number), pair) for pair in splits if all(part in vocab for part in pair)]
merges = [pair for _, pair in sorted(merges, key=lambda merge: merge[0])]

tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
# A space stands in front of every text, also of one that begins with spaces, and of what follows a special token.
tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", source.bos_id())])
tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])

texts = (folder / "held_out.txt").read_text().splitlines()
for golden in json.loads((folder / "golden.json").read_text())["prompts"]:
    texts += [golden["prompt"], golden["text"]]
dice = random.Random(20261129)
letters = "  \n\tabcdefghij.,!?'\"<>0123456789éü☃日本😀▁\u00a0\u3000\0"
texts += ["".join(dice.choices(letters, k=dice.randrange(60))) for _ in range(20000)]
words = [source.id_to_piece(i).replace("▁", " ") for i in range(259, size)]
texts += ["".join(dice.choices(words, k=dice.randrange(30))) for _ in range(20000)]
for text in texts:
    expected = source.encode(text) if text else []
    actual = tokenizer.encode(text, add_special_tokens=False).ids
    assert actual == expected, (text, actual, expected)

written = json.loads(tokenizer.to_str())
written["model"]["merges"] = [" ".join(pair) for pair in merges]  # as versions of the library before 0.20 read them
(folder / "tokenizer.json").write_text(json.dumps(written, ensure_ascii=False, indent=1) + "\n")
print(f"tokenizer.json: {size} tokens, {len(merges)} merges; {len(texts)} texts have the same ids")
