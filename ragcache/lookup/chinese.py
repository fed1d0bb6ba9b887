"""Structure of a Chinese question, by characters and a list of words; no segmentation.

Character pairs of one meaning are replaced by one spelling, fillers are dropped, question
words are taken out and name what is asked for. What is left, character by character, must
have its counterpart on the other side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from .content import Content
from .lexicon import chinese as lists
from .quantities import quantities
from .words import HAN, words_of

_A_NOT_A = re.compile(rf"([{HAN}])[不没]\1|([{HAN}]{{2}})[不没]\2|有没有")
_PUNCTUATION = re.compile(r"[\s，。！？、；：（）()《》“”\"'…~～·.!?,;:\[\]【】—-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The parts of a reading."""

    quantities: tuple[str, ...]
    negations: tuple[str, ...]
    question: str
    content: tuple[Content, ...]
    function: tuple[str, ...]
    flags: frozenset[str]
    spans: list[tuple[int, int]]
    slots: tuple[tuple[str, str], ...] = ()
    tense: str = ""


@dataclass(slots=True, kw_only=True)
class _Cut:
    """A text whose pieces are taken out one kind after another; places stay those of the text."""

    chars: list[str]
    taken: list[str] = field(default_factory=list)

    def take(self, word: str, instead: str = "") -> bool:
        """Blank out every occurrence of a word; its first place keeps what stands for it."""
        text = "".join(self.chars)
        found = False
        at = text.find(word)
        while at >= 0:
            found = True
            for place in range(at, at + len(word)):
                self.chars[place] = " "
            for offset, char in enumerate(instead[: len(word)]):
                self.chars[at + offset] = char
            at = text.find(word, at + len(word))
        return found


def is_chinese(text: str) -> bool:
    """Whether the text is written in Chinese characters, at least in part."""
    return bool(re.search(rf"[{HAN}]", text))


def parse(text: str) -> Parsed:
    """Take a folded Chinese question apart."""
    cut = _Cut(chars=list(text))
    for match in _PUNCTUATION.finditer(text):
        if not re.search(r"\d$", text[: match.start()]):
            cut.chars[match.start() : match.end()] = " " * (match.end() - match.start())
    yesno = _neutralise(cut)
    for word in lists.FILLERS:
        cut.take(word)
    question = _question(cut) or yesno
    for word in lists.ADVERBS:
        cut.take(word)
    negations = _negations(cut)
    counted = _numerals(cut)
    for word, instead in _spellings():
        cut.take(word, instead)
    return _parsed(text, cut, question=question, negations=negations, numerals=counted)


def _neutralise(cut: _Cut) -> str:
    """A-not-A asks yes or no and negates nothing: 能不能 is 能…吗."""
    text = "".join(cut.chars)
    found = ""
    for match in _A_NOT_A.finditer(text):
        kept = match.group(1) or match.group(2) or "有"
        width = match.end() - match.start()
        cut.chars[match.start() : match.end()] = list((kept + " " * width)[:width])
        found = "yesno"
    return found


@cache
def _question_words() -> tuple[tuple[str, str], ...]:
    pairs = [(word, kind) for kind, words in lists.QUESTIONS.items() for word in words.split()]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _question(cut: _Cut) -> str:
    """Take the question words out and return the kind of the most telling one."""
    kinds = []
    for match in re.finditer("(?:怎么|该怎么)(?=办理)", "".join(cut.chars)):
        cut.chars[match.start() : match.end()] = " " * (match.end() - match.start())
        kinds.append("how")
    kinds += [kind for word, kind in _question_words() if cut.take(word)]
    telling = [kind for kind in kinds if kind not in ("what", "yesno", "how", "quality")]
    return next(iter([*telling, *kinds]), "")


def _negations(cut: _Cut) -> tuple[str, ...]:
    text = "".join(cut.chars)
    for word in lists.NOT_NEGATIONS:
        text = text.replace(word, "　" * len(word))
    places = [at for at, char in enumerate(text) if char in lists.NEGATIONS]
    found = tuple(text[at] for at in places)
    for at in places:
        cut.chars[at] = " "
    return found


def _numerals(cut: _Cut) -> list[str]:
    """Take Chinese numerals out, but for those that count nothing."""
    text = "".join(cut.chars)
    for word in lists.NOT_NUMERALS:
        text = text.replace(word, "　" * len(word))
    found = []
    for match in re.finditer(f"[{''.join(lists.NUMERALS)}]+", text):
        if match.group() == "一":
            continue
        found.append(_number(match.group()))
        for at in range(match.start(), match.end()):
            cut.chars[at] = " "
    return found


def _number(numerals: str) -> str:
    """二十三 is 23, 二零二四 is 2024, 三百 is 300."""
    values = [float(lists.NUMERALS[c]) for c in numerals]
    if all(value < 10 and value != 0.5 for value in values):
        return str(int("".join(str(int(value)) for value in values)))
    total, section, unit = 0.0, 0.0, 0.0
    for value in values:
        if value >= 10_000:
            total, section, unit = (total + section + unit or 1) * value, 0.0, 0.0
        elif value >= 10:
            section, unit = section + (unit or 1) * value, 0.0
        else:
            unit = unit * 10 + value
    whole = total + section + unit
    return str(int(whole)) if whole == int(whole) else str(whole)


@cache
def _spellings() -> tuple[tuple[str, str], ...]:
    """Words of one meaning, each with the word that stands for all; longest first."""
    pairs = [
        (word, line.split()[0])
        for line in lists.CONCEPTS.splitlines()
        for word in line.split()[1:]
        if len(word) >= len(line.split()[0])
    ]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _parsed(
    text: str, cut: _Cut, *, question: str, negations: tuple[str, ...], numerals: list[str]
) -> Parsed:
    words = words_of("".join(cut.chars))
    counted = quantities(words)
    content: list[Content] = []
    spans: list[tuple[int, int]] = []
    function: list[str] = []
    for at, word in enumerate(words):
        if at in counted.places:
            continue
        if word.text in lists.FUNCTION:
            function.append(word.text)
            continue
        soft = word.text in lists.SOFT
        content.append(Content(text=word.text, stem=word.stem, proper=word.proper, soft=soft))
        spans.append((word.start, word.end))
    return Parsed(
        quantities=tuple(sorted([*counted.values, *numerals])),
        negations=negations,
        question=question,
        content=tuple(content),
        function=tuple(function),
        tense=_tense(text),
        flags=_flags(text, content),
        spans=spans,
    )


def _tense(text: str) -> str:
    """Return "future" or "past" where the question says it: 会跌吗, 跌了吗."""
    if re.search(r"会[^吗]{0,6}[吗么]|会不会|将[会要]", text):
        return "future"
    return "past" if re.search(r"[了过][吗么没]", text) else ""


def _flags(text: str, content: list[Content]) -> frozenset[str]:
    found = set()
    plain = _PUNCTUATION.sub("", text)
    if any(plain.startswith(word) for word in lists.ACTIONS):
        found.add("action")
    if any(word in text for word in lists.TIME_WORDS):
        found.add("time")
    weighty = [word for word in content if not word.soft]
    if not weighty or (len(weighty) < 4 and any(word in text for word in lists.POINTING)):
        found.add("leans")
    return frozenset(found)
