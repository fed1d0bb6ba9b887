"""Marks in a text: instructions to the model, refusals, errors, personal data, the moment.

General phrases, written for this project. They stop what is careless or copied; what keeps a
determined writer from others is quarantine, not words (Wu et al., NDSS 2026: filters alone do
not stop cache poisoning).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..keys import fold
from .phrases import Phrases, compiled, phrase

#: Marks that no question, document or answer carries in good faith.
_STRONG = Phrases(
    phrase(
        "ignore|disregard|forget|override",
        r"\b(?:ignore|disregard|forget|override)\b[^.?!\n]{0,60}\b(?:instruction|prompt|rule",
        r"|document|context|above|previous|prior|earlier|guideline)s?\b",
    ),
    phrase(
        "note for|note to",
        r"\bnote (?:for|to) (?:the |any )?(?:assistant|model|ai|bot|llm)s?\b",
    ),
    phrase(
        "system|assistant|developer|user",
        r"(?:^|\n|[.?!)\"']\s)\s*(?:system|assistant|developer|user)\s*:",
    ),
    phrase(
        "<",
        r"<\|?/?(?:system|im_start|im_end|endoftext|document|context|instructions?|source|tool)",
        r"\|?>|<!--|<<sys>>",
    ),
    phrase("inst]", r"\[/inst\]|(?:^|\n)\s*\[inst\]"),
    phrase(
        "you are now|developer mode",
        r"\byou are now (?:a|an|in|the)\b|\bdeveloper mode\b",
    ),
    phrase(
        "asked|asks",
        r"\b(?:when|if) (?:you are |anyone |someone |a user )?(?:asked|asks)\b[^.?!\n]{0,80}",
        r"\b(?:always |you must |please )?(?:say|answer|reply|respond|output)\b",
    ),
    phrase(
        " must | should | have to ",
        r"\b(?:ai|language model|assistant)s? (?:must|should|have to) ",
        r"(?:say|answer|reply|output)\b",
    ),
    phrase(
        "忽略|无视|记住",
        r"忽略(?:之前|以上|上面|前面|所有|文档)|无视(?:之前|以上|上面|文档)",
        r"|请?记住.{0,10}(?:答案|回答)是",
    ),
)
#: Marks of a question that tells the model what to answer.
_TELLING = compiled(
    r"\b(?:verified|official|correct|trusted|right|real|true) answer is\b",
    r"\btreat (?:this|that|the following|these)\b[^.?!\n]{0,40}\bas\b",
    r"\b(?:respond|reply|answer) (?:only |exactly )?with "
    r"(?:the following|this (?:text|line|answer))\b",
    r"\brepeat (?:exactly|after me|verbatim|the following)\b|\band nothing else\b",
    r"\b(?:reply|respond) only with (?:that|this|the)\b",
    r"\b(?:answer|output|reply|response)s? (?:to this question )?must "
    r"(?:start|begin|contain|include|end|say|be)\b",
    r"\b(?:start|begin|end) (?:your|the|every) (?:answer|reply|response|output) with\b",
    r"\bin (?:your|the) (?:answer|reply|response)\b[^.?!\n]{0,20}"
    r"\b(?:replace|include|add|say|mention|recommend|insert|put|write|use)\b",
    r"\bfrom now on\b[^.?!\n]{0,30}\b(?:answer|reply|you|say)\b",
    r"\b(?:pretend|imagine|assume)\b[^.?!\n]{0,60}\b(?:changed|new|policy|you are|answer)\b",
    r"\baccording to the (?:changed|new|updated|following) (?:policy|rule|text)\b",
    r"\bremember (?:this|that|it)\b[^.?!\n]{0,20}\b(?:everyone|everybody|all|others|later|future)\b"
    r"[^.?!\n]{0,10}:",
    r"\b(?:stored|cached|saved|shown|remembered) (?:for|to) (?:other|all|every|future)\b",
    r"\b(?:for|to) (?:all )?other users\b",
    r"\bthen answer\b|\band (?:then |just |only )?(?:say|answer|reply|respond)\b",
    r"\buse only the (?:context|text|answer) (?:above|below|here)\b|```\s*\[",
    r"只(?:能)?(?:回答|回复)|答案(?:必须)?是[:：]|对所有人",
)
_QUOTED = re.compile(r"['\"“‘「『][^'\"”’」』\n]{2,80}['\"”’」』]")
_REFUSAL = Phrases(
    phrase(
        "sorry|unable|afraid|not able",
        r"\bi(?:'m| am) (?:sorry|unable|afraid|not able)\b[^.!?]{0,80}\b(?:help|assist|answer",
        r"|comply|provide|do that|access|fulfil|discuss|can(?:'|no)t)\b",
    ),
    phrase(
        "i can|i could|i won't|i will not|i am unable",
        r"\bi (?:can(?:no|')t|cannot|could not|couldn't|won't|will not|am unable to)\b",
        r"[^.!?]{0,60}\b(?:help|assist|answer|comply|provide|do that|fulfil|discuss)\b",
    ),
    phrase("as an ai|as a language model", r"\bas an ai\b|\bas a language model\b"),
    phrase(
        "es tut mir leid|lo siento",
        r"\bes tut mir leid\b.{0,60}\bnicht\b|\blo siento\b.{0,40}\bno puedo\b",
    ),
    phrase("désol|desol", r"\bje (?:suis )?d[ée]sol[ée]e?\b.{0,60}\bne (?:peux|puis)\b"),
    phrase(
        "抱歉|对不起|申し訳",
        r"抱歉.{0,12}(?:无法|不能)|对不起.{0,12}(?:无法|不能)",
        r"|申し訳.{0,30}(?:できません|いたしかねます)",
    ),
    phrase("content filtered", r"^\s*\[?content filtered\]?\s*$"),
)
_NO_EVIDENCE = Phrases(
    phrase(
        "not |n't |no ",
        r"\b(?:do(?:es)? not|don't|doesn't|did not|didn't|no|not) (?:have |contain |enough ",
        r"|mention |any |find |include |provide |state )+[^.!?]{0,40}\b(?:information|answer",
        r"|documents?|context|evidence|this|details?)\b",
    ),
    phrase(
        "could not|couldn't|no ",
        r"\bcould(?: not|n't) (?:be )?f(?:ind|ound)\b",
        r"|\bno (?:relevant )?(?:documents?|results?)\b",
    ),
    phrase(
        "没有|未|无法找到",
        r"(?:文档|资料|上下文|文件)中?(?:没有|未)(?:找到|提及|包含)|没有找到|未找到相关|无法找到",
    ),
)
_ERROR = Phrases(
    phrase(
        "error|traceback|exception|<html|<!doctype",
        r"^\s*(?:error\b|traceback|exception\b|\{\s*\"error\"|<html|<!doctype)",
    ),
    phrase(
        "rate limit|429|50",
        r"\b(?:rate limit|429|50[0-4])\b[^.!?]{0,20}\b(?:reached|too many|bad gateway|internal",
        r"|service|exceeded|unavailable|timeout)\b",
    ),
    phrase(
        "went wrong|again later|call failed|upstream connect|service unavailable|server error",
        r"\bsomething went wrong\b|\btry again later\b|\b(?:tool|function) call failed\b",
        r"|\bupstream connect\b|\bservice unavailable\b|\binternal server error\b",
    ),
    phrase(
        "unable to access",
        r"\bunable to access (?:the |your )?(?:database|server|service|tool|system)\b",
    ),
)
_EMPTY = frozenset(("n/a", "na", "null", "none", "undefined", "nil", "nan", "[]", "{}", "unknown"))
_DIGIT = re.compile(r"\d")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
_PHONE = re.compile(r"(?<![\w./-])\+?\(?\d[\d\s().-]{7,}\d(?![\w/])")
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){12,19}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b")
_MY = re.compile(
    r"\b(?:my|mine|i am|i'm|i've)\b"
    r"|(?<!\btell )(?<!\bshow )(?<!\bgive )(?<!\bhelp )(?<!\bteach )(?<!\blet )\bme\b"
    r"|我的|我家|本人",
    re.IGNORECASE,
)
_YOURS = Phrases(
    phrase("hi |hello |dear |hey ", r"^\s*(?:hi|hello|dear|hey) [A-Z][a-z]+\s*[,!]"),
    phrase(
        "your ",
        r"\byour (?:\w+ ){0,2}(?:balance|order|invoice|appointment|booking|claim|card|account",
        r"|payment|parcel|ticket|salary|score)\b[^.!?]{0,40}(?:[£$€¥#]|\d)",
    ),
    phrase("您的", r"您的(?:余额|订单|账户|预约|工资)"),
)
_WORD = re.compile(r"[\w'-]+")
_MOMENT = Phrases(
    phrase(
        "today|tonight|right now|current|latest|at the moment|as of|yesterday|tomorrow"
        "|this morning|this week|this month|this year|at present|nowadays",
        r"\b(?:today|tonight|right now|currently|current|latest|at the moment|as of|yesterday",
        r"|tomorrow|this (?:morning|week|month|year)|at present|nowadays)\b",
    ),
    phrase("now", r"\bnow\b(?=[^\w]*$)"),
    phrase(
        "今天|今晚|现在|目前|最新|当前|昨天|明天|实时|截至",
        r"今天|今晚|现在|目前|最新|当前|昨天|明天|实时|截至",
    ),
)


def has_instruction(text: str) -> bool:
    """Whether a question tells the model what to answer instead of asking.

    Words in quotation marks are asked about, not said.
    """
    folded = fold(text)
    return _STRONG.occur_in(_QUOTED.sub(" ", folded)) or bool(_TELLING.search(folded))


def carries_instruction(text: str) -> bool:
    """Whether a document or an answer addresses the model that reads it."""
    return _STRONG.occur_in(fold(text))


def unusable(text: str) -> str:
    """Return "empty", "truncated", "error", "refusal" or "no_evidence" for no answer, or ""."""
    folded = fold(text).strip()
    if not folded.strip(" .-") or folded.casefold().rstrip(".") in _EMPTY:
        return "empty"
    if folded.startswith("<think>") and "</think>" not in folded:
        return "truncated"
    for name, mark in (("error", _ERROR), ("refusal", _REFUSAL), ("no_evidence", _NO_EVIDENCE)):
        if mark.occur_in(folded[:2_000]):
            return name
    return ""


def personal_data(text: str) -> frozenset[str]:
    """Return the mail addresses, phone, account and card numbers in a text, in one spelling."""
    folded = fold(text)
    numbers = (_PHONE, _CARD, _IBAN) if _DIGIT.search(folded) else ()
    marks = (_MAIL, *numbers) if "@" in folded else numbers
    found = [match.group() for mark in marks for match in mark.finditer(folded)]
    return frozenset(item.casefold() if "@" in item else re.sub(r"\W", "", item) for item in found)


def speaks_of_self(text: str) -> bool:
    """Whether the asker speaks of what is theirs."""
    return bool(_MY.search(fold(text)))


def speaks_to_one(text: str) -> bool:
    """Whether an answer speaks of what one person has: a greeting by name, "your balance is 5"."""
    return _YOURS.occur_in(fold(text))


def of_the_moment(text: str) -> bool:
    """Whether a text is about the present moment and will not hold for long."""
    return _MOMENT.occur_in(fold(text))


def changing(text: str, words: Mapping[str, float]) -> list[float]:
    """Return the value of each word that the text holds: whole words, or parts of Chinese text."""
    folded = f" {' '.join(re.findall(_WORD, fold(text).casefold()))} "
    return [value for word, value in words.items() if _held(word.casefold(), folded)]


def _held(word: str, folded: str) -> bool:
    return (f" {word} " if word.isascii() else word) in folded
