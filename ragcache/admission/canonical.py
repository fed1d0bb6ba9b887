"""Whether what the model was asked is the question that is stored, and nothing but a question.

An answer that others shall be served must come from words that they would have used, too: a
sentence beside the question, markup or another wording for the model than for the cache can
steer the answer, and nobody who is served it would see that.
"""

from __future__ import annotations

import re

from ..keys import fold, normal_question
from ..types import Request

#: Markup that encloses or adds something; a single tag may be what is asked about.
_MARKUP = re.compile(
    r"<!--|</\w+>|```|\]\(|\{\{|\{%|\[/inst\]|<</|<\|\w+\|>.*<\|"
    r"|^\s*(?:#{1,6} |[*-] |\d+[.)] )"
    r"|\b(?:system|assistant|user|human|note|context|instructions?|question|answer|documents?"
    r"|official|important|remember|repeat \w+)\s*[:：]",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_BREAK = re.compile(r"(?<=[.!?;])\s+|(?<=[!?;])(?=[\u4e00-\u9fff])|(?<=。)\s*|[\r\n\u2028\u2029]+")
_ASKS = re.compile(r"\?\W*$|[吗呢]\W*$")
#: A full stop behind these ends no sentence.
_ABBREVIATED = re.compile(
    r"(?:\b[a-z]|\b(?:mr|mrs|ms|dr|prof|st|no|nr|vs|etc|inc|ltd|co|approx|art|sec|fig|vol|jan|feb"
    r"|mar|apr|jun|jul|aug|sept?|oct|nov|dec|e\.g|i\.e|a\.m|p\.m))\.$",
    re.IGNORECASE,
)
#: Says nothing: "Hello!", "Thanks in advance."
_POLITE = re.compile(
    r"(?:hi|hello|hey|dear \w+|good (?:morning|afternoon|evening|day)|please(?: help)?|help"
    r"|thanks?(?: you)?(?: (?:so|very) much| a lot| in advance)?|cheers|any (?:idea|help)s?"
    r"|(?:kind |best )?regards|excuse me|sorry|ok(?:ay)?|你好|您好|谢谢|请问|请帮忙)"
    r"(?: (?:there|all|everyone|team))?\W*",
    re.IGNORECASE,
)


def beyond_the_question(request: Request) -> str:
    """Return what makes a request's question more than the question that is stored, or ""."""
    asked, stored = request.question, request.standalone
    if stored and normal_question(stored) != normal_question(asked):
        return "the model was asked in other words than those that are stored"
    folded = fold(asked)
    if _MARKUP.search(folded):
        return "the question holds markup"
    sentences = [part for part in _sentences(folded) if not _POLITE.fullmatch(part)]
    if len(sentences) > 1 and not all(_ASKS.search(part) for part in sentences):
        return "the question holds more than a question"
    return ""


def _sentences(text: str) -> list[str]:
    found: list[str] = []
    for part in filter(None, (piece.strip() for piece in _BREAK.split(text))):
        if found and _ABBREVIATED.search(found[-1]):
            found[-1] += f" {part}"
        else:
            found.append(part)
    return found
