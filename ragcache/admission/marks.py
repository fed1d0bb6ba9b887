"""Marks in a text: instructions to the model, refusals, errors, personal data."""

from __future__ import annotations

import re

from ..keys import fold

_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.?!]{0,60}"
    r"\b(?:instruction|prompt|rule|document|context|above|previous|prior|earlier|guideline)s?\b"
    r"|\b(?:reply|respond|answer)\b[^.?!]{0,30}\b(?:only|exactly|with the following|nothing else)\b"
    r"|\b(?:say|state|output|repeat|write|print)\b[^.?!]{0,20}\b(?:exactly|verbatim|must|that)\b"
    r"|\bnote (?:for|to) the (?:assistant|model|ai)\b|\b(?:verified|correct|trusted) answer is\b"
    r"|(?:^|\n|[.?!]\s)\s*(?:system|assistant|user|developer)\s*:"
    r"|\bfrom now on\b|\bpretend\b|\bsay pay\b|\bact as\b|\byou are now\b"
    r"|<\|?(?:system|im_start|endoftext)|\[/?INST\]",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|unable|afraid)|i (?:can(?:no|')t|could not|couldn't|won't))\b"
    r"[^.!?]{0,80}\b(?:help|assist|answer|comply|provide|do that|find|access|fulfil|discuss)\b"
    r"|\bas an ai\b",
    re.IGNORECASE,
)
_NO_EVIDENCE = re.compile(
    r"""\b(?:do(?:es)?\ not|don't|doesn't|no|not)\s
        (?:have\ |contain\ |enough\ |mention\ |any\ |find\ |include\ )+
        [^.!?]{0,40}\b(?:information|answer|documents?|context|evidence|this)\b
    |\bcould\ not\ (?:be\ )?f(?:ind|ound)\b
    |\bno\ (?:relevant\ )?(?:documents?|results?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR = re.compile(
    r"""^\s*(?:error\b|traceback|\{\s*"error"|<html)
    |\b(?:rate\ limit|429|50[0-4])\ (?:reached|too\ many|bad\ gateway|internal|service)
    |\bsomething\ went\ wrong\b|\btry\ again\ later\b
    |\btool\ call\ failed\b|\bupstream\ connect\b""",
    re.IGNORECASE | re.VERBOSE,
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_PHONE = re.compile(r"(?<![\w.])\+?\d[\d\s().-]{7,}\d(?![\w])")
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){12,19}(?!\d)")
_MY = re.compile(r"\b(?:my|mine|i am|i'm)\b|我的", re.IGNORECASE)


def has_instruction(text: str) -> bool:
    """Whether the text addresses the model instead of asking or telling something."""
    return bool(_INSTRUCTION.search(fold(text)))


def unusable(text: str) -> str:
    """Return "empty", "error", "refusal" or "no_evidence" for an answer that is none, or ""."""
    folded = fold(text).strip()
    if not folded.strip(" .-") or folded.casefold() in ("n/a", "null", "none", "undefined"):
        return "empty"
    for name, mark in (("error", _ERROR), ("refusal", _REFUSAL), ("no_evidence", _NO_EVIDENCE)):
        if mark.search(folded):
            return name
    return ""


def personal_data(text: str) -> frozenset[str]:
    """Return the mail addresses, phone, account and card numbers in a text."""
    folded = fold(text)
    found = [m.group() for mark in (_MAIL, _PHONE, _CARD) for m in mark.finditer(folded)]
    return frozenset(re.sub(r"[\s().-]", "", item) if "@" not in item else item for item in found)


def speaks_of_self(text: str) -> bool:
    """Whether the asker speaks of what is theirs."""
    return bool(_MY.search(fold(text)))
