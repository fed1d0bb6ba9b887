"""Text to words: splitting, contractions, stems, roots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .lexicon import english

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(
    rf"""\#?[A-Za-z]{{1,6}}-?\d[\w-]*\d\w?(?![\w-])   # ids: WT-44219, LN-5567A
    |[vV]\d+(?:\.\d+)*                             # versions: v2.4
    |[A-Za-zÀ-ɏͰ-ϿЀ-ӿ]+(?:['’][A-Za-z]+)?  # words and contractions
    |\d+(?:[.,:/-]\d+)*                            # numbers, times, dates
    |[{HAN}]                                       # one Chinese character
    |[£$€¥₹%#]""",
    re.VERBOSE,
)
_CONTRACTIONS = {
    "can't": "can not",
    "cannot": "can not",
    "cant": "can not",
    "dont": "do not",
    "doesnt": "does not",
    "wont": "will not",
    "isnt": "is not",
    "didnt": "did not",
    "won't": "will not",
    "shan't": "shall not",
    "ain't": "is not",
    "let's": "let us",
    "y'all": "you all",
    "wanna": "want to",
    "gonna": "going to",
}
_SINGULAR = frozenset(("news", "series", "always", "perhaps", "lens", "besides", "afterwards"))
_ID = re.compile(r"#?[A-Za-z]+-?\d[\w-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a question with its place in the folded text.

    `proper`: capitalised where the sentence does not ask for it, or quoted. `piece` counts
    the words that one written form was taken apart into.
    """

    text: str
    stem: str
    start: int
    end: int
    proper: bool = False


def words_of(text: str) -> tuple[Word, ...]:
    """Return the words of a folded text, contractions taken apart."""
    found: list[Word] = []
    shouted = _shouted(text)
    quoted = _quoted(text)
    for match in _TOKEN.finditer(text):
        (start, end), raw = match.span(), match.group()
        proper = _is_proper(raw, text, start, shouted=shouted) or bool(
            quoted and any(a <= start < b for a, b in quoted)
        )
        for part, stemmed in _parts(raw):
            found.append(Word(text=part, stem=stemmed, start=start, end=end, proper=proper))
    return tuple(found)


@lru_cache(maxsize=16_384)
def _parts(raw: str) -> tuple[tuple[str, str], ...]:
    """Return the words that one written form stands for, each with its stem."""
    return tuple((part, stem(part)) for part in _taken_apart(raw))


def _taken_apart(raw: str) -> list[str]:
    if _ID.fullmatch(raw) and any(c.isdigit() for c in raw):
        return [raw.lstrip("#").casefold()]
    return expand(raw.casefold().replace("’", "'")).split()


def expand(word: str) -> str:
    """Return a contraction as the words it stands for."""
    if word in _CONTRACTIONS:
        return _CONTRACTIONS[word]
    if word.endswith("n't"):
        return f"{word[:-3]} not"
    word = word.split("'", 1)[0] if "'" in word else word
    return english.SPELLINGS.get(word, word)


def _shouted(text: str) -> bool:
    """Whether capitals say nothing here: everything, or nearly, is capitalised."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    if len(words) >= 2 and all(word.isupper() for word in words):
        return True
    capital = sum(word[0].isupper() for word in words)
    return len(words) > 3 and capital >= 0.7 * len(words)


def _quoted(text: str) -> list[tuple[int, int]]:
    marks = re.finditer(r"[\"“«「『‘']([^\"”»」』’']{2,60})[\"”»」』’'](?![A-Za-z])", text)
    return [m.span(1) for m in marks if m.start() == 0 or not text[m.start() - 1].isalnum()]


def _is_proper(raw: str, text: str, start: int, *, shouted: bool) -> bool:
    if not raw[0].isupper() or raw in ("I", "I'm", "I've", "I'd", "I'll"):
        return False
    inner_capitals = sum(c.isupper() for c in raw) > 1
    if shouted:
        return False
    if inner_capitals:
        return True
    at = start - 1
    while at >= 0 and text[at].isspace():
        at -= 1
    return at >= 0 and text[at] not in ".?!:;\"“'‘("


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the word without its inflection: plural, past, participle."""
    if word in english.IRREGULAR:
        return stem(english.IRREGULAR[word])
    if word in english.FUNCTION or len(word) <= 3 or not word.isascii():
        return word
    word = english.SPELLINGS.get(word, word)
    return english.SPELLINGS.get(_inflected(word), _inflected(word))


def _inflected(word: str) -> str:
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and word not in _SINGULAR:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and _has_vowel(word[: -len(ending)]) and len(word) > 4:
            return _mended(word[: -len(ending)])
    if word.endswith("e") and len(word) > 4 and word[-2] not in "e":
        return _american(word[:-1])
    return word


def _american(body: str) -> str:
    return body[:-2] + "iz" if body.endswith("is") else body


def _has_vowel(text: str) -> bool:
    return any(c in "aeiouy" for c in text)


def _mended(body: str) -> str:
    """Take back a doubled consonant, drop the silent e on both sides alike."""
    if len(body) > 3 and body[-1] == body[-2] and body[-1] not in "lsz":
        return body[:-1]
    if body.endswith("ll") and len(body) > 5:
        return body[:-1]  # cancelled, travelling
    return _american(body[:-1] if body.endswith("e") else body)


_DERIVED = [
    "isation",
    "ization",
    "ication",
    "ation",
    "ition",
    "ment",
    "anc",
    "enc",
    "ility",
    "ity",
    "ag",
    "abl",
    "ibl",
    "abil",
    "ibil",
    "al",
    "ically",
    "ally",
    "ion",
    "iv",
    "ly",
    "ness",
    "ful",
    "ur",
    "y",
    "ic",
    "ical",
    "iz",
]
_ENDINGS = sorted(_DERIVED, key=len, reverse=True)


@lru_cache(maxsize=65_536)
def root(stem_of_word: str) -> str:
    """Return what is left without derivational endings: pay/payment, renew/renewal."""
    for ending in _ENDINGS:
        if stem_of_word.endswith(ending) and len(stem_of_word) - len(ending) >= 3:
            return _bare(stem_of_word[: -len(ending)])
    return _bare(stem_of_word)


def _bare(body: str) -> str:
    body = body.rstrip("ei") if len(body) > 4 else body
    return body[:-1] if len(body) > 4 and body[-1] == body[-2] else body
