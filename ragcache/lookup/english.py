"""English words that the gates know by name. General lists, written for this project."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FUNCTION = _words(
    """a an the this that these those some any each every all both such same other
    i me my mine myself we us our ours ourselves you your yours he him his she her hers it its
    they them their theirs one ones someone somebody anyone anybody everyone everybody
    something anything everything who whom whose what which when where why how
    am is are was were be been being do does did done doing have has had having
    can could will would shall should may might must ought need
    and or but if then else so as than because while though although whether
    of in on at to from by for with about into onto over under between among through during
    before after within without against per via upon toward towards off out up down until till
    since above below along across behind beyond near around inside outside beside besides
    there here just also too very really actually even still already yet ever only
    go get got getting let lets s t re ve ll d m"""
)
FRAME = _words(
    """please thanks thank hi hello hey hiya dear team cheers um uh er erm sorry silly question
    quick wondering wonder know tell explain way ways method process procedure step steps
    possible able want wanted like would love help need trying try best idea ideas okay ok
    yeah yes advance kindly exactly basically"""
)
NEGATIONS = _words("not no never none nothing nobody neither nor cannot without except non")
NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        _list(
            """zero one two three four five six seven eight nine ten eleven twelve thirteen
            fourteen fifteen sixteen seventeen eighteen nineteen twenty"""
        )
    )
} | {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
    "thousand": "1000",
    "million": "1000000",
    "billion": "1000000000",
    "half": "0.5",
    "dozen": "12",
    "another": "another",
}
MONTHS = _list(
    """january february march april may june july august september october november december"""
)
DAYS = _list("monday tuesday wednesday thursday friday saturday sunday")
ACTIONS = _words(
    """add apply block book buy cancel change check close confirm connect create delete deposit
    disable dispute download email enable file find freeze give increase list lock make move open
    order pay pull raise refund remind remove renew replace report request reset schedule sell
    send set show shut start stop submit switch transfer turn unlock update withdraw"""
)
TIME_WORDS = _words("today now current currently pending latest tonight yesterday tomorrow")
ANTONYMS = """
enable disable|include exclude|buy sell|before after|open close|increase decrease|upgrade downgrade
lock unlock|accept decline|accept reject|approve reject|add remove|start stop|pause resume
best worst|hot cold|safe unsafe|busy quiet|compulsory optional|benefit drawback|spicy mild
allow forbid|allow prohibit|deposit withdraw|on off|in out|up down|lawful unlawful|cover exclude
"""
