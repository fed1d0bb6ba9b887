"""Made-up questions: traps that differ in one thing that matters, and rewordings that do not.

Both come from frames with slots, English and Chinese, so that their number has no end and no
row of a public set is in them. A trap of each kind changes the answer: a number, a unit, a date,
a name, a negation, an opposite, a scope, a tense. `reworded` disturbs any given question as
people do: politeness, hesitation, a slip of the finger, another frame, another order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

from .answers import Pair

_PRODUCTS = (
    "travel card", "business account", "storage plan", "gift voucher", "data plan", "season ticket",
    "home insurance", "library pass", "parking permit", "coffee subscription", "credit card",
    "heating contract", "film rental", "meal kit", "gym membership", "delivery pass",
)  # fmt: skip
_NAMES = (
    "Kestrel", "Merlin", "Orla", "Brand", "Tarmac", "Solva", "Quillon", "Ferndale", "Norvik",
    "Pellam", "Westbrook", "Larkhill", "Ostrava", "Dunmore", "Halden", "Castor",
)  # fmt: skip
_VERBS = (
    ("enable", "disable"), ("activate", "deactivate"), ("increase", "decrease"), ("open", "close"),
    ("lock", "unlock"), ("upgrade", "downgrade"), ("start", "stop"), ("accept", "decline"),
    ("pause", "resume"), ("add", "remove"), ("connect", "disconnect"), ("install", "uninstall"),
    ("buy", "sell"), ("join", "leave"), ("show", "hide"), ("import", "export"),
    ("subscribe to", "unsubscribe from"), ("turn on", "turn off"), ("upload", "download"),
    ("extend", "shorten"),
)  # fmt: skip
_ADJECTIVES = (
    ("cheapest", "most expensive"), ("minimum", "maximum"), ("earliest", "latest"),
    ("best", "worst"), ("highest", "lowest"), ("fastest", "slowest"), ("first", "last"),
    ("daily", "monthly"), ("weekly", "yearly"), ("online", "in-store"),
    ("domestic", "international"),
)  # fmt: skip
_STATES = (
    ("included", "excluded"), ("allowed", "forbidden"), ("compulsory", "optional"),
    ("available", "unavailable"), ("refundable", "non-refundable"), ("free", "not free"),
    ("covered", "not covered"), ("taxable", "not taxable"), ("valid", "invalid"),
    ("permitted", "prohibited"), ("safe", "unsafe"), ("legal", "illegal"),
)  # fmt: skip
_SCOPES = (
    ("students", "pensioners"), ("adults", "children"), ("members", "non-members"),
    ("new customers", "existing customers"), ("employees", "contractors"), ("tenants", "landlords"),
    ("a flat", "an office"), ("my account", "my joint account"), ("my card", "my daughter's card"),
    ("personal use", "commercial use"), ("the basic plan", "the premium plan"), ("cats", "dogs"),
)  # fmt: skip
_UNITS = (
    ("days", "weeks"), ("hours", "minutes"), ("kg", "g"), ("MB", "GB"), ("miles", "km"),
    ("months", "years"), ("mg", "g"), ("litres", "ml"), ("dollars", "euros"),
)  # fmt: skip
_MONTHS = ("January", "March", "April", "June", "July", "August", "October", "December")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_ZH_PRODUCTS = (
    "信用卡",
    "会员",
    "流量套餐",
    "快递",
    "贷款",
    "保险",
    "优惠券",
    "公积金",
    "手机号",
    "花呗",
)
_ZH_CITIES = ("北京", "上海", "广州", "深圳", "杭州", "南京", "成都", "武汉", "西安", "重庆")
_ZH_VERBS = (
    ("开通", "关闭"), ("提高", "降低"), ("增加", "减少"), ("绑定", "解绑"), ("买", "卖"),
    ("上传", "下载"), ("升级", "降级"), ("锁定", "解锁"), ("安装", "卸载"), ("加入", "退出"),
    ("启用", "停用"),    ("存", "取"),
)  # fmt: skip
_ZH_SCOPES = (
    ("老人", "儿童"),
    ("学生", "老师"),
    ("男生", "女生"),
    ("国内", "国外"),
    ("个人", "企业"),
)


def traps(count: int, *, seed: int = 0) -> list[Pair]:
    """Return pairs that differ in one thing that changes the answer."""
    return _made(_TRAPS, count, seed, same=False)


def paraphrases(count: int, *, seed: int = 0) -> list[Pair]:
    """Return pairs that ask for the same in other words."""
    return _made(_PARAPHRASES, count, seed, same=True)


_Maker = Callable[[random.Random], tuple[str, str]]


def _made(makers: Sequence[tuple[str, _Maker]], count: int, seed: int, *, same: bool) -> list[Pair]:
    draw = random.Random(seed)  # noqa: S311 -- made-up questions need no secrets
    found: dict[tuple[str, str], Pair] = {}
    for at in range(count * 20):
        if len(found) >= count:
            break
        kind, maker = makers[at % len(makers)]
        stored, asked = maker(draw)
        if stored != asked:
            found[stored, asked] = Pair(stored=stored, asked=asked, same=same, kind=kind)
    return list(found.values())


def _two(draw: random.Random, items: Sequence[str]) -> tuple[str, str]:
    one, other = draw.sample(list(items), 2)
    return one, other


def _either(draw: random.Random, pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    one, other = draw.choice(pairs)
    return (one, other) if draw.random() < 0.5 else (other, one)


def _filled(draw: random.Random, frames: Sequence[str], one: str, other: str) -> tuple[str, str]:
    frame = draw.choice(frames)
    rest = {"p": draw.choice(_PRODUCTS), "n": draw.choice(_NAMES), "z": draw.choice(_ZH_PRODUCTS)}
    rest["k"] = str(draw.randint(2, 60))
    rest["c"] = draw.choice(_ZH_CITIES)
    return frame.format(x=one, **rest), frame.format(x=other, **rest)


def _number(draw: random.Random) -> tuple[str, str]:
    one = draw.randint(2, 90)
    other = one + draw.choice((1, 2, 5, 10, one))
    frames = (
        "What is the fee for the {p} after {x} days?",
        "Can I use the {p} for {x} people?",
        "Is there a discount on the {p} for orders over £{x}?",
        "What are the limits of {n} v{x}.4?",
        "What is the status of ticket {n}-{x}?",
        "Does the {p} renew at {x}am?",
        "What did {n} earn in Q3 20{x}?",
    )
    return _filled(draw, frames, str(one), str(other))


def _unit(draw: random.Random) -> tuple[str, str]:
    frames = ("Is {k} {x} enough for the {p}?", "What does the {p} cost beyond {k} {x}?")
    return _filled(draw, frames, *_either(draw, _UNITS))


def _date(draw: random.Random) -> tuple[str, str]:
    if draw.random() < 0.5:
        months = (
            "Does the {p} end in {x}?",
            "What changed for {n} in {x}?",
            "Is the {p} cheaper in {x} than at other times?",
        )
        return _filled(draw, months, *_two(draw, _MONTHS))
    days = ("Is the {n} office open on {x}?", "When does {n} deliver the {p} on {x}?")
    return _filled(draw, days, *_two(draw, _DAYS))


def _entity(draw: random.Random) -> tuple[str, str]:
    frames = (
        "How much is the {p} at {x}?",
        "How do I return a {p} to {x}?",
        "Who founded {x}?",
        "Does {x} offer a {p}?",
        "What are the opening hours of the {x} branch?",
    )
    return _filled(draw, frames, *_two(draw, _NAMES))


def _product(draw: random.Random) -> tuple[str, str]:
    frames = ("How do I cancel the {x}?", "What documents do I need for the {x}?")
    return _filled(draw, frames, *_two(draw, _PRODUCTS))


def _negation(draw: random.Random) -> tuple[str, str]:
    frame, word = draw.choice(
        (
            ("Which {p} fees are {x}refunded?", "not "),
            ("Can {n} customers {x}transfer the {p}?", "not "),
            ("What happens if I do {x}renew the {p}?", "not "),
            ("Which of the {p} terms {x}apply to me?", "never "),
            ("Is the {p} sold with{x} a contract?", "out"),
        )
    )
    return _filled(draw, (frame,), *_either(draw, (("", word),)))


def _opposite(draw: random.Random) -> tuple[str, str]:
    if draw.random() < 0.4:
        frames = ("Is the {p} {x} for {n} customers?", "Which parts of the {p} are {x}?")
        return _filled(draw, frames, *_either(draw, _STATES))
    if draw.random() < 0.4:
        frames = ("What is the {x} price of the {p}?", "When is the {x} date for the {p} at {n}?")
        return _filled(draw, frames, *_either(draw, _ADJECTIVES))
    frames = ("How do I {x} the {p}?", "What does it cost to {x} a {p} with {n}?")
    return _filled(draw, frames, *_either(draw, _VERBS))


def _scope(draw: random.Random) -> tuple[str, str]:
    frames = ("What does the {p} cost for {x}?", "Does {n} insure the {p} for {x}?")
    return _filled(draw, frames, *_either(draw, _SCOPES))


def _tense(draw: random.Random) -> tuple[str, str]:
    frames = ("What {x} the price of the {p}?", "Who {x} the head of {n}?")
    return _filled(draw, frames, *_either(draw, (("is", "was"), ("was", "will be"))))


def _roles(draw: random.Random) -> tuple[str, str]:
    one, other = _two(draw, _NAMES)
    product = draw.choice(_PRODUCTS)
    if draw.random() < 0.2:
        frame = f"Does the {one} office open {{}} the {other} office?"
        return frame.format("before"), frame.format("after")
    frame = draw.choice(
        (
            "How do I move my {p} from {a} to {b}?",
            "What does it cost to switch from {a} to {b}?",
            "How do I convert {a} files into {b} files?",
        )
    )
    return frame.format(p=product, a=one, b=other), frame.format(p=product, a=other, b=one)


def _zh_number(draw: random.Random) -> tuple[str, str]:
    one = draw.randint(2, 90)
    frames = (
        "{z}{x}天内可以退吗？",
        "{z}第{x}期什么时候还？",
        "满{x}元的{z}怎么用？",
        "{c}{x}号线几点开？",
    )
    return _filled(draw, frames, str(one), str(one + draw.randint(1, 9)))


def _zh_entity(draw: random.Random) -> tuple[str, str]:
    frames = ("{x}怎么办理{z}？", "{x}的{z}多少钱？", "在{x}可以用{z}吗？")
    return _filled(draw, frames, *_two(draw, _ZH_CITIES))


def _zh_opposite(draw: random.Random) -> tuple[str, str]:
    frames = ("怎么{x}{z}？", "{x}{z}要多久？", "{z}如何{x}？")
    return _filled(draw, frames, *_either(draw, _ZH_VERBS))


def _zh_negation(draw: random.Random) -> tuple[str, str]:
    frames = ("哪些{z}{x}收费？", "{c}的{z}{x}能退吗？", "{z}{x}还会怎么样？")
    return _filled(draw, frames, *_either(draw, (("", "不"), ("", "没有"))))


def _zh_scope(draw: random.Random) -> tuple[str, str]:
    return _filled(draw, ("{x}可以用{z}吗？", "{x}{z}多少钱？"), *_either(draw, _ZH_SCOPES))


def _zh_roles(draw: random.Random) -> tuple[str, str]:
    one, other = _two(draw, _ZH_CITIES)
    frame = draw.choice(
        ("从{a}到{b}要多久？", "{a}到{b}的高铁几点开？", "{a}寄到{b}的快递多少钱？")
    )
    return frame.format(a=one, b=other), frame.format(a=other, b=one)


_TRAPS: tuple[tuple[str, _Maker], ...] = (
    ("number", _number),
    ("unit", _unit),
    ("date", _date),
    ("entity", _entity),
    ("product", _product),
    ("negation", _negation),
    ("opposite", _opposite),
    ("scope", _scope),
    ("tense", _tense),
    ("roles", _roles),
    ("zh number", _zh_number),
    ("zh entity", _zh_entity),
    ("zh opposite", _zh_opposite),
    ("zh negation", _zh_negation),
    ("zh scope", _zh_scope),
    ("zh roles", _zh_roles),
)

# --- the same in other words -------------------------------------------------------------------

_SAME = (
    ("How do I cancel my {p}?", "What's the process for cancelling my {p}?"),
    ("How do I cancel my {p}?", "How can I terminate my {p}?"),
    ("How much does the {p} cost?", "What's the price of the {p}?"),
    ("How much is the {p} at {n}?", "What does {n} charge for the {p}?"),
    ("Can I pay for the {p} by card?", "Is it possible to pay for the {p} by card?"),
    ("What documents do I need for the {p}?", "Which documents are required for the {p}?"),
    ("How do I renew my {p}?", "I'd like to know how I can renew my {p}"),
    ("What is the refund window for the {p}?", "what's the {p} refund window"),
    ("Does {n} offer a {p}?", "Is a {p} offered by {n}?"),
    ("Who founded {n}?", "Who was the founder of {n}?"),
    ("How long is the {p} valid?", "For how long is the {p} valid?"),
    ("Are fees waived on the {p}?", "Does the {p} waive fees?"),
    ("Where can I buy the {p}?", "Where can I purchase the {p}?"),
    ("How do I change the address on my {p}?", "How can I update the address on my {p}?"),
    ("Do you deliver the {p} to {n}?", "Is delivery of the {p} to {n} possible?"),
    ("What time does the {n} office close?", "When does the {n} office close?"),
    ("How many days of notice does the {p} need?", "How many days' notice is needed for the {p}?"),
    ("How do I activate the {p}?", "How do I enable the {p}?"),
    ("Which {p} is the cheapest?", "What is the cheapest {p}?"),
    ("Can children use the {p}?", "Can kids use the {p}?"),
)
_ZH_SAME = (
    ("怎么办理{z}？", "请问如何办理{z}"),
    ("{z}多少钱？", "请问{z}的价格是多少？"),
    ("{c}怎么申请{z}", "在{c}怎样申请{z}呢？"),
    ("{z}能不能退？", "{z}可以退吗"),
    ("为什么{z}不能用？", "{z}为啥不能用啊"),
    ("{z}什么时候到账？", "{z}何时到账呢"),
    ("怎么取消{z}？", "如何取消{z}，谢谢"),
    ("哪里可以办{z}？", "请问在哪儿可以办{z}？"),
    ("如何修改{z}的密码", "怎样更改{z}密码？"),
    ("{z}有什么优惠？", "你好，{z}有哪些优惠"),
)


def _paraphrase(draw: random.Random) -> tuple[str, str]:
    stored, asked = draw.choice(_SAME)
    values = {"p": draw.choice(_PRODUCTS), "n": draw.choice(_NAMES)}
    pair = stored.format(**values), asked.format(**values)
    return pair if draw.random() < 0.5 else (pair[1], pair[0])


def _zh_paraphrase(draw: random.Random) -> tuple[str, str]:
    stored, asked = draw.choice(_ZH_SAME)
    values = {"z": draw.choice(_ZH_PRODUCTS), "c": draw.choice(_ZH_CITIES)}
    return stored.format(**values), asked.format(**values)


_PARAPHRASES: tuple[tuple[str, _Maker], ...] = (
    ("paraphrase", _paraphrase),
    ("zh paraphrase", _zh_paraphrase),
)

# --- the same question, disturbed --------------------------------------------------------------

_WRAPPERS = (
    "Can you tell me {q}?", "I'd like to know: {Q}", "Hi, {q} please? Thanks!",
    "Quick question: {Q}", "Please tell me, {q}",
)  # fmt: skip
_FILLERS = ("um", "uh", "er", "like")


def reworded(question: str, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield a question as people also put it: (kind, text).

    wrapper: politeness around it; filler: hesitation inside; typo: two letters of a long
    lower-case word change places; frame: contracted, lower case, no question mark; fronting:
    its last prepositional phrase stands first.
    """
    draw = random.Random(f"{seed}:{question}")  # noqa: S311 -- made-up questions
    bare = question.strip().rstrip("?").strip()
    if not bare:
        return
    lower = bare[0].lower() + bare[1:] if bare.split()[0] not in _NAMES else bare
    yield "wrapper", draw.choice(_WRAPPERS).format(q=lower, Q=bare + "?")
    words = bare.split()
    place = draw.randint(1, max(1, len(words) - 1))
    yield "filler", " ".join([*words[:place], draw.choice(_FILLERS), *words[place:]]) + "?"
    if slip := _slipped(words, draw):
        yield "typo", " ".join(slip) + "?"
    yield "frame", re.sub(r"^(What|Who|Where|How) (is|are)\b", r"\1's", bare).replace("'s", "'s")
    match = re.search(r"^(.*\w) ((?:in|at|on|during|for) (?:the )?[A-Z][\w' -]+)$", bare)
    if match:
        head = match.group(1)
        yield "fronting", f"{match.group(2).capitalize()}, {head[0].lower()}{head[1:]}?"


def _slipped(words: Sequence[str], draw: random.Random) -> list[str] | None:
    long = [at for at, word in enumerate(words) if len(word) >= 6 and word.islower() and at > 0]
    if not long:
        return None
    at = draw.choice(long)
    word = words[at]
    cut = draw.randint(1, len(word) - 3)
    slip = word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :]
    return [*words[:at], slip, *words[at + 1 :]] if slip != word else None
