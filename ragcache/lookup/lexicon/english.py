"""English function words, frames, numbers and units."""

from __future__ import annotations


def split(text: str) -> tuple[str, ...]:
    """Return the blank-separated words of a list."""
    return tuple(text.split())


def words(text: str) -> frozenset[str]:
    """Return the blank-separated words of a list as a set."""
    return frozenset(text.split())


#: Words that carry structure, not meaning. Prepositions among them are looked at on their own.
FUNCTION = words(
    """a an the this that these those some any each such same other own
    i me my mine myself we us our ours ourselves you your yours yourself he him his himself she
    her hers herself it its itself they them their theirs themselves
    someone somebody anyone anybody everyone everybody something anything everything one ones
    who whom whose what which when where why how whether
    am is are was were be been being do does did done doing have has had having
    can could will would shall should may might must ought
    and or but if then else so as than because while though although also just too very really
    actually even still already yet ever only about like there here again once
    of in on at to from by for with into onto over under between among through during before
    after within without against per via upon toward towards off out up down until till since
    above below along across behind beyond near around inside outside beside besides regarding
    s t re ve ll d m got gotten going gonna let lets etc am pm"""
)
PREPOSITIONS = words(
    """of in on at to from by for with into onto over under between through during before after
    within without against via off out until till since above below across behind beyond near
    inside outside up down"""
)
#: Politeness, hesitation and set phrases around a question.
FRAME = words(
    """please thanks thank cheers hi hello hey hiya dear team sir um umm uh uhm er erm hmm sorry
    silly quick question questions wondering wonder know tell explain say kindly exactly basically
    way ways method methods process procedure procedures step steps possible able okay ok yeah yes
    well right advance guys folks anybody help question idea ideas appreciate please'"""
)
#: Words so light that they need no counterpart on the other side.
SOFT = words(
    """get gets getting give gives make makes making take takes taking find finding use used using
    need needs needed want wants wanted like go goes come comes put try trying look looking keep
    work works thing things kind sort type types lot available option options offer exist provide
    best good main different various certain particular best able require required
    something amount approach manage happen happens mean means become becomes
    does currently actually personally generally usually normally typically often else
    place time times way day days case cases part side point total overall possible"""
)
#: Nouns and verbs that add no restriction: one may be left over where the other side lacks
#: nothing else.
LIGHT = words(
    """account customer user person people member someone ticket document documents copy detail
    details information info number service system request item belong belongs apply applies owe
    check checks stay remain permanently completely fully successfully properly correctly safely
    quickly easily simply symptom sign fact facts example examples purpose customer's transfer
    payment process type list status real really great whole entire overall basically name named
    called currently exact exactly specific proper correct good great"""
)
#: Words that narrow down what is meant: never left over, whatever their vectors say.
NARROWING = words(
    """other another different previous previously former formerly next last first second original
    originally initial only sole vice deputy assistant acting co joint self half quarter partial
    partially full fully single double extra additional special separate same opposite alternative
    alternatively instead rather new old current future past again extended shared mutual third
    own nickname existing upcoming forthcoming recurring joint inner outer upper lower left right northern southern eastern western someone somebody colleague friend neighbour neighbor son daughter child children kid
    kids baby wife husband partner spouse mother father parent parents brother sister teenage
    teenager adult adults senior seniors pensioner student students employee employees employer
    company business personal private public domestic international abroad foreign overseas
    home office online offline store outside inside guest guests visitor visitors group team family
    household commercial residential industrial academic medical legal temporary permanent annual
    monthly weekly daily yearly quarterly hourly premium basic standard gold silver platinum free
    paid enterprise pro emergency express urgent minimum maximum least most best worst"""
)
NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        split(
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
    "trillion": "1000000000000",
    "half": "0.5",
    "dozen": "12",
    "twice": "2x",
    "thrice": "3x",
    "double": "2x",
    "triple": "3x",
    "couple": "couple",
    "another": "another",
    "second": "nth2",
    "third": "nth3",
    "fourth": "nth4",
    "fifth": "nth5",
    "sixth": "nth6",
    "seventh": "nth7",
    "eighth": "nth8",
    "ninth": "nth9",
    "tenth": "nth10",
}
MONTHS = split(
    """january february march april may june july august september october november december"""
)
MONTHS_SHORT = {name[:3]: name for name in MONTHS if name != "may"} | {"sept": "september"}
DAYS = split("monday tuesday wednesday thursday friday saturday sunday")
DAYS_SHORT = {
    "mon": "monday",
    "tue": "tuesday",
    "tues": "tuesday",
    "wed": "wednesday",
    "thu": "thursday",
    "thur": "thursday",
    "thurs": "thursday",
    "fri": "friday",
}
#: Spellings of a unit, when it stands behind a number, and its name.
UNITS = {
    spelling: name
    for name, spellings in {
        "kg": "kg kgs kilo kilos kilogram kilograms kilogramme",
        "g": "g gram grams gramme",
        "mg": "mg milligram milligrams",
        "mcg": "mcg microgram micrograms",
        "lb": "lb lbs pound_weight",
        "oz": "oz ounce ounces",
        "km": "km kms kilometre kilometres kilometer kilometers",
        "m": "metre metres meter meters",
        "cm": "cm centimetre centimetres centimeter centimeters",
        "mm": "mm millimetre millimetres millimeter millimeters",
        "mile": "mile miles",
        "mph": "mph",
        "kmh": "kmh kph",
        "ft": "ft foot feet",
        "inch": "inch inches",
        "l": "litre litres liter liters",
        "ml": "ml millilitre millilitres milliliter milliliters",
        "kb": "kb kilobyte kilobytes",
        "mb": "mb megabyte megabytes",
        "gb": "gb gig gigs gigabyte gigabytes",
        "tb": "tb terabyte terabytes",
        "mbps": "mbps",
        "gbps": "gbps",
        "w": "watt watts",
        "kw": "kw kilowatt kilowatts",
        "kwh": "kwh",
        "v": "volt volts",
        "percent": "% percent pct",
        "celsius": "celsius centigrade",
        "fahrenheit": "fahrenheit",
        "second": "sec secs seconds",
        "minute": "min mins minute minutes",
        "hour": "hr hrs hour hours",
        "day": "day days",
        "week": "week weeks wk wks",
        "month": "month months",
        "year": "year years yr yrs",
        "am": "am a.m",
        "pm": "pm p.m",
        "gbp": "£ gbp quid pound pounds sterling",
        "usd": "$ usd dollar dollars bucks",
        "eur": "€ eur euro euros",
        "jpy": "¥ jpy yen",
        "cny": "cny rmb yuan",
        "inr": "₹ inr rupee rupees rs",
        "k": "k",
        "bn": "bn",
        "x": "x",
    }.items()
    for spelling in spellings.split()
}
#: Units that are words of the sentence where no number stands before them.
UNIT_SIGNS = {sign: UNITS[sign] for sign in "%£$€¥₹"}
#: Verbs that open an order to act.
ACTIONS = words(
    """add apply approve block book buy call cancel change check close confirm connect create
    delete deposit disable dispute download email enable file find fix freeze give increase
    list lock make move open order pay play print pull raise record refund remind remove renew
    replace report request reset schedule sell send set show shut start stop submit switch
    transfer turn unblock unlock update upgrade withdraw decrease lower reduce put"""
)
#: Words that tie a question to the moment at which it is asked.
TIME_WORDS = words(
    """today tonight now current currently presently pending latest yesterday tomorrow
    nowadays recent recently available_now"""
)
IRREGULAR = {
    form: base
    for base, forms in {
        "child": "children kid kids",
        "person": "people persons",
        "man": "men",
        "woman": "women",
        "foot": "feet",
        "tooth": "teeth",
        "mouse": "mice",
        "wife": "wives",
        "life": "lives",
        "knife": "knives",
        "leaf": "leaves",
        "shelf": "shelves",
        "buy": "bought",
        "pay": "paid",
        "send": "sent",
        "lose": "lost losing",
        "win": "won winning",
        "write": "wrote written writing",
        "take": "took taken taking",
        "give": "gave given",
        "make": "made making",
        "find": "found",
        "tell": "told",
        "sell": "sold",
        "keep": "kept",
        "hold": "held",
        "build": "built",
        "spend": "spent",
        "begin": "began begun",
        "choose": "chose chosen choice choices",
        "break": "broke broken",
        "freeze": "froze frozen",
        "steal": "stole stolen",
        "drive": "drove driven driving",
        "fly": "flew flown flight flights flying",
        "grow": "grew grown growth",
        "know": "knew known",
        "run": "ran",
        "see": "saw seen",
        "speak": "spoke spoken",
        "wear": "wore worn",
        "withdraw": "withdrew withdrawn",
        "become": "became",
        "bring": "brought",
        "catch": "caught",
        "come": "came coming",
        "eat": "ate eaten",
        "fall": "fell fallen",
        "feel": "felt",
        "fight": "fought",
        "forget": "forgot forgotten",
        "get": "got gotten",
        "go": "went gone",
        "hear": "heard",
        "hide": "hid hidden",
        "lead": "led",
        "lend": "lent",
        "mean": "meant",
        "meet": "met",
        "ride": "rode ridden",
        "rise": "rose risen",
        "say": "said",
        "shake": "shook shaken",
        "sing": "sang sung",
        "sink": "sank sunk",
        "sit": "sat",
        "sleep": "slept",
        "stand": "stood",
        "swim": "swam swum",
        "teach": "taught",
        "think": "thought",
        "throw": "threw thrown",
        "understand": "understood",
        "wake": "woke woken",
        "good": "better",
        "bad": "worse",
        "tax": "taxes",
        "use": "using used",
        "live": "living",
        "die": "died dying",
        "lie": "lying",
        "tie": "tying",
        "pass": "passes",
        "bus": "buses",
        "gas": "gases",
    }.items()
    for form in forms.split()
}
SPELLINGS = {
    "colour": "color",
    "favour": "favor",
    "favourite": "favorite",
    "neighbour": "neighbor",
    "behaviour": "behavior",
    "labour": "labor",
    "harbour": "harbor",
    "honour": "honor",
    "centre": "center",
    "theatre": "theater",
    "metre": "meter",
    "litre": "liter",
    "fibre": "fiber",
    "licence": "license",
    "defence": "defense",
    "offence": "offense",
    "practise": "practice",
    "programme": "program",
    "catalogue": "catalog",
    "dialogue": "dialog",
    "enrol": "enroll",
    "fulfil": "fulfill",
    "instal": "install",
    "instalment": "installment",
    "grey": "gray",
    "tyre": "tire",
    "aluminium": "aluminum",
    "whats": "what",
    "wheres": "where",
    "hows": "how",
    "whos": "who",
    "ur": "your",
    "u": "you",
    "pls": "please",
    "plz": "please",
    "thx": "thanks",
    "wi-fi": "wifi",
    "e-mail": "email",
}
