"""Structure of an English question: type, tense, negation, slots, and what makes it unfit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

from .content import Content
from .lexicon import english
from .words import HAN, Word

_SPAN = r"(?:\w+ )?(?:days?|hours?|weeks?|months?|years?|minutes?|seconds?)"
#: Explicit types of a question, the first that fits. "how do I" and yes/no say nothing.
_TYPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(rf"\b(?:{pattern})\b"))
    for name, pattern in (
        ("frequency", r"how (?:often|frequently|regularly|many times)"),
        ("duration", rf"how (?:many {_SPAN}|long|soon|fast|quick|quickly)"),
        ("count", r"how many"),
        ("amount", r"how (?:much|expensive|costly|cheap)"),
        ("distance", r"how far"),
        ("age", r"how old"),
        ("size", r"how (?:big|large|tall|high|heavy|wide|deep|small|low)"),
        ("who", r"who|whom|whose|which (?:person|people|author)|by whom"),
        ("when", r"when|(?:what|which) (?:time|date|day|year|month|century|decade)"),
        ("where", r"where|(?:what|which) (?:place|city|country|location|town)"),
        ("why", r"why|how come|what (?:is|are|was|were) the reasons?"),
        ("what", r"what|which"),
    )
)
_PHRASES = re.compile(
    r"\bhow (?:often|frequently|regularly|many times|many|long|soon|fast|quick|quickly|much"
    r"|expensive|costly|cheap|far|old|big|large|tall|high|heavy|wide|deep|small|low)\b"
)
_PAST = frozenset(("was", "were", "did", "had"))
_PRESENT = frozenset(("is", "are", "do", "does", "am"))
_FUTURE = frozenset(("will", "shall"))
_NEGATIONS = english.words(
    "not no never none nothing nobody nowhere neither nor without except excluding unless non "
    "hardly barely minus besides"
)
_LANGUAGES = {
    "de": "der die das und ist nicht wie ich ein eine kann mein was wo wann warum für mit auf",
    "fr": "le la les est je un une des comment que quel quelle où pourquoi mon ma puis pour dans",
    "es": "el los las es una cómo qué cuál dónde por para mi puedo cuánto está como que de",
    "it": "il lo gli è una come che quale dove perché mio posso per quanto sono di",
    "pt": "os as é uma como que qual onde por para meu minha posso quanto está",
    "nl": "het een is niet hoe ik kan mijn wat waar wanneer waarom voor met op van",
}
_LANGUAGE_WORDS = {code: frozenset(text.split()) for code, text in _LANGUAGES.items()}
_BIDI = frozenset("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.?!]{0,60}"
    r"\b(?:instruction|prompt|rule|document|context|above|previous|prior|earlier|guideline)s?\b"
    r"|\bnote (?:for|to) the (?:assistant|model|ai)\b"
    r"|(?:^|\n|[.?!]\s)\s*(?:system|assistant|developer)\s*:"
    r"|\b(?:reply|respond|answer) (?:only|exactly|with the following)\b|\band nothing else\b"
    r"|\bfrom now on\b|<\|?(?:system|im_start)|\[/?INST\]"
    r"|忽略(?:之前|以上|上面|前面|所有)|无视(?:之前|以上|上面)|(?:只|仅)(?:回复|回答)",
    re.IGNORECASE,
)


def question_type(words: Sequence[Word]) -> str:
    """Return the type of the question by its first question word, or "" where it has none."""
    joined = " ".join(word.text for word in words)
    found = [
        (m.start(), rank, name)
        for rank, (name, pattern) in enumerate(_TYPES)
        if (m := pattern.search(joined))
    ]
    return min(found)[2] if found else ""


def asking_words(words: Sequence[Word]) -> frozenset[int]:
    """Return the places of words that belong to a question word: "much" of "how much"."""
    return frozenset(
        at
        for at in range(1, len(words))
        if words[at - 1].text == "how" and _PHRASES.fullmatch(f"how {words[at].text}")
    )


def negations(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the negating words, in their order."""
    return tuple(
        word.text
        for at, word in enumerate(words)
        if word.text in _NEGATIONS and not _is_tag(words, at)
    )


def _is_tag(words: Sequence[Word], at: int) -> bool:
    """ "no matter", "or not" at the end, "why not", "no longer" (a word of its own)."""
    following = words[at + 1].text if at + 1 < len(words) else ""
    before = words[at - 1].text if at else ""
    return (before == "or" and not following) or (words[at].text == "no" and following == "matter")


def tense(words: Sequence[Word]) -> str:
    """Return the tense of the first auxiliary, or ""."""
    for word in words:
        if word.text in _PAST:
            return "past"
        if word.text in _PRESENT:
            return "present"
        if word.text in _FUTURE:
            return "future"
    return ""


def slots(words: Sequence[Word], taken: Collection[int]) -> tuple[tuple[str, str], ...]:
    """Return each preposition with the stem of the word that it governs."""
    found = []
    for at, word in enumerate(words):
        if word.text not in english.PREPOSITIONS and word.text != "than":
            continue
        for place in range(at + 1, min(at + 5, len(words))):
            text = words[place].text
            if text in english.PREPOSITIONS:
                break
            if place in taken or (text[0].isalnum() and text not in english.FUNCTION):
                found.append((word.text, words[place].stem))
                break
    return tuple(found)


def language(words: Sequence[Word], text: str) -> str:
    """Return the language by its commonest words; English unless another is surer."""
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return ""
    latin = text.isascii() or sum(_is_latin(c) for c in letters) >= len(letters) / 2
    if not latin:
        return _script(letters)
    texts = [word.text for word in words]
    english_count = sum(t in english.FUNCTION or t in english.FRAME for t in texts)
    best, count = max(
        ((code, sum(map(known.__contains__, texts))) for code, known in _LANGUAGE_WORDS.items()),
        key=lambda pair: pair[1],
    )
    return best if count >= 2 and count > english_count else "en"


def _is_latin(letter: str) -> bool:
    return letter.isascii() or "LATIN" in unicodedata.name(letter, "")


def _script(letters: Sequence[str]) -> str:
    return unicodedata.name(letters[0], "").split(" ", 1)[0].casefold()


def flags(question: str, words: Sequence[Word], content: Sequence[Content]) -> frozenset[str]:
    """Return what makes a question unfit to be matched, or fit for some namespaces only."""
    found = set(unsafe_flags(question))
    texts = [word.text for word in words]
    spoken = [t for t in texts if t not in english.FRAME]
    if spoken and spoken[0] in english.ACTIONS:
        found.add("action")
    if any(t in english.TIME_WORDS for t in texts):
        found.add("time")
    if _leans(texts, content):
        found.add("leans")
    return frozenset(found)


def unsafe_flags(question: str) -> frozenset[str]:
    """Return "instruction" and "mixed" where the raw text carries such marks.

    "mixed": letters of another script inside a Latin word, or an override of the reading
    direction: text that is not what it looks like.
    """
    found = set()
    if _INSTRUCTION.search(question):
        found.add("instruction")
    if _BIDI.intersection(question) or _mixes_scripts(question):
        found.add("mixed")
    return frozenset(found)


def _mixes_scripts(text: str) -> bool:
    if text.isascii():
        return False
    for run in re.findall(rf"[^\W\d_{HAN}]+", text):
        scripts = {_letter_script(c) for c in run}
        if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK"}:
            return True
    return False


def _letter_script(letter: str) -> str:
    return "LATIN" if letter.isascii() else unicodedata.name(letter, "").split(" ", 1)[0]


_POINTING = english.words("it its they them their theirs that this those these he him his she hers")


def _leans(texts: Sequence[str], content: Sequence[Content]) -> bool:
    weighty = [word for word in content if not word.soft]
    if not weighty:
        return True
    return len(weighty) < 3 and any(t in _POINTING for t in texts)
