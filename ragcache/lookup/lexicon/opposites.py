"""Opposites: axes with two ends each. A word on the other end of an axis asks something else.

`turn_on` is a phrase whose parts may stand apart ("turn my heating on").
"""

from __future__ import annotations

#: One axis a line, its two ends left and right of the bar.
AXES = """
enable activate turn_on switch_on power_on unmute | disable deactivate turn_off switch_off power_off shut_off mute cut_off
on | off
include inclusive contain | exclude exclusive omit leave_out
include cover | exclude uncovered
contain | lack
buy purchase acquire | sell
before prior earlier ahead beforehand precede | after later afterwards following afterward follow
open | close shut closed
increase raise grow boost extend expand rise gain bump put_up go_up | decrease reduce lower cut shrink decline lessen bring_down drop fall shorten diminish go_down limit
more greater bigger larger higher upper extra further longer | less fewer smaller lower reduced shorter
more | fewer less
most maximum max highest largest biggest longest upper top maximal | least minimum min lowest smallest shortest fewest bottom minimal
upgrade | downgrade
lock freeze block | unlock unfreeze unblock
accept approve agree allow grant confirm | decline reject refuse deny dismiss
accept | decline reject refuse
approve | reject deny disapprove refuse
add put_in insert attach append include top_up | remove take_out delete detach take_off leave_off drop
deposit pay_in put_in top_up add | withdraw take_out cash_out draw
start begin commence launch initiate set_up | stop end finish terminate halt cease quit conclude
start begin resume | pause suspend stop cancel
resume continue restart | pause suspend interrupt stop
best better finest ideal | worst poorest worse
better | worse
good well | bad poorly badly
hot warm heated | cold cool chilled cooled
hottest warmest | coldest coolest
safe secure safely harmless | unsafe dangerous insecure risky hazardous unsafely harmful
busy crowded packed | quiet empty calm
busiest | quietest
loud noisy | quiet silent
compulsory mandatory required obligatory | optional voluntary elective
necessary essential required needed | unnecessary optional needless
benefit advantage pro upside strength plus | drawback disadvantage con downside weakness minus
advantage | disadvantage
spicy hot | mild
sweet | sour bitter savoury savory salty
allow permit authorise authorize legal let | forbid prohibit ban disallow block bar illegal
allowed permitted | forbidden prohibited banned
legal lawful legitimate legally lawfully | illegal unlawful illegitimate illegally unlawfully
opt_in sign_up join enrol enroll subscribe register | opt_out leave unsubscribe withdraw deregister unenrol cancel
login log_in sign_in | logout log_out sign_out
log | logout
check_in checkin | check_out checkout
in | out
into | out
inside indoor indoors interior internal inner within | outside outdoor outdoors exterior external outer
up upward upwards upstairs | down downward downwards downstairs
above over | below under beneath underneath
over exceeding above | under below
import | export
upload | download
send post mail ship dispatch give | receive get_back collect return
send | receive
lend loan_out | borrow
lender | borrower
rent_out let_out | rent
landlord owner lessor | tenant renter lessee
employer boss | employee worker staff
seller vendor merchant | buyer purchaser customer
teacher tutor instructor lecturer | student pupil learner
doctor physician | patient
parent | child
arrive arrival land | depart departure leave takeoff
arrivals | departures
enter entry entrance | exit leave
win victory beat | lose defeat loss
winner | loser
succeed success pass successful | fail failure unsuccessful
pass | fail
create make build generate | delete destroy remove erase
install | uninstall remove
connect link pair attach join | disconnect unlink unpair detach separate
show display reveal unhide | hide conceal
public | private
hire recruit employ appoint | fire dismiss sack lay_off
hire | fire
full | empty
full | part partial half
fulltime | parttime
complete | incomplete partial
finished | unfinished
correct right accurate | wrong incorrect inaccurate mistaken
right | left
right | wrong
true | false
positive | negative
high tall | low short
higher taller | lower shorter
highest tallest | lowest shortest
long | short brief
longest | shortest
big large huge great | small little tiny
biggest largest | smallest
fast quick rapid speedy | slow
fastest quickest | slowest
early | late
earlier | later
earliest | latest
early | overdue
new latest fresh modern | old outdated ancient
newest | oldest
new | existing current
same | different other
ordinary | special
standard | express
interior | exterior
wired | wireless
live | recorded
alone | together
rural | city
separate | joint together
incoming | outgoing
before_tax | after_tax
landline | mobile
hardware | software
hardback | paperback
matinee | evening
inpatient | outpatient
prescription | over_counter
young | old elderly
youngest | oldest
easy simple | hard difficult complex complicated
easiest | hardest
cheap inexpensive affordable | expensive costly pricey dear
cheapest | dearest costliest
cheaper | dearer pricier
rich wealthy | poor
strong | weak
heavy | light
thick | thin
wide broad | narrow
deep | shallow
soft | hard firm
wet damp | dry
clean | dirty
dark | bright light
day daytime | night nighttime overnight
morning | evening afternoon night
weekday | weekend
sunrise dawn | sunset dusk
summer | winter
north northern | south southern
east eastern | west western
ascending | descending
first initial | last final
beginning start | end ending
opening | closing
front | back rear
top | bottom
male man men masculine boy gentleman | female woman women feminine girl lady
male | female
husband | wife
father dad daddy | mother mum mom
son | daughter
brother | sister
uncle | aunt
king | queen
adult grown | child kid children infant
married | single unmarried divorced
alive living | dead deceased
birth born | death die died
cause | prevent cure
encourage promote support | discourage hinder oppose
support favour favor | oppose
attack | defend
love like enjoy | hate dislike
friend ally | enemy foe
increase | decrease
improve enhance repair fix help strengthen build | worsen damage harm break ruin hurt weaken destroy lower
improve | damage worsen
protect | expose
gain | lose
profit | loss
income revenue earning | expense expenditure outgoing spending
credit | debit
asset | liability
debt | savings
surplus | deficit shortage
supply | demand
wholesale | retail
gross | net
fixed | variable floating adjustable
standard regular normal ordinary basic | premium special deluxe
manual manually | automatic automated automatically
temporary temporarily | permanent permanently
indefinite | definite
single one | multiple several many
single | double
single | return
single | joint
one-way | return round-trip
individual personal | group joint shared family collective
personal private | business commercial corporate professional
personal | shared
home domestic national local | international foreign abroad overseas
home | abroad away
domestic | international
local | remote
local | global
urban | rural
online digital internet electronic web paperless | offline paper store instore person postal branch
online | offline
virtual | physical
paperless | paper posted
free | paid
free complimentary | chargeable
covered | uncovered excluded
insured | uninsured
employed | unemployed self-employed
selfemployed | employed
taxable | taxfree
guilty | innocent
visible | invisible hidden
possible | impossible
able | unable
available | unavailable
eligible | ineligible
suitable appropriate fit | unsuitable inappropriate unfit
known | unknown
common usual frequent | rare unusual uncommon
always | never
often frequently | rarely seldom
all every everything everyone | none nothing nobody
all | some
both | neither
with | without
ever | never
likely | unlikely
agree | disagree
appear | disappear
approve | disapprove
trust | distrust
obey | disobey
qualify | disqualify
mount | unmount
pack | unpack
wrap | unwrap
zip compress | unzip extract
compress | decompress expand
encrypt | decrypt
encode | decode
archive | unarchive restore
delete | restore recover undelete
lost lose missing | found find
hide | unhide show
follow | unfollow
like | unlike
pin | unpin
tie | untie
dress | undress
do | undo
undo | redo
load | unload
plug_in | unplug
fasten | unfasten
fold | unfold
push | pull
push | pop
lift raise | lower
ascend climb | descend
attract | repel
absorb | emit release
expand | contract
freeze | melt thaw
boil | freeze
inhale | exhale
input | output
sender | recipient receiver
source | destination target
origin | destination
forward forwards | backward backwards
clockwise | anticlockwise counterclockwise
horizontal landscape | vertical portrait
plural | singular
major | minor
majority | minority
senior | junior
superior | inferior
offence offense | defence defense
ancestor | descendant
predecessor | successor
previous former last past | next following upcoming future
previous | next
past | future
yesterday | tomorrow
ago | hence
since | until
within | after outside beyond
during | after before
minimum | maximum
ceiling | floor
pro | anti
pro | con
acid acidic | alkaline base
solid | liquid gas
native | foreign
natural | artificial synthetic
organic | inorganic
raw | cooked
vegetarian vegan | meat
alcoholic | nonalcoholic
alive | dead
asleep sleep | awake wake
sit | stand
tighten | loosen
fill | empty drain
accelerate speed_up | decelerate slow_down brake
inflate | deflate
appreciate | depreciate
overestimate | underestimate
overweight | underweight
overpay | underpay
oversea | domestic
hot | iced
immigration immigrate | emigration emigrate
import | export
inbound incoming | outbound outgoing
outward | inward return
outbound | return inbound
debit | credit
prepaid | postpaid
prepay | contract
secured | unsecured
voluntary | involuntary compulsory
active activated | inactive inactivated dormant
valid | invalid expired
expired | valid current
present | absent
presence | absence
attend | miss skip
remember | forget
answer | question ask
question | answer
talk speak | listen
read | write
teach | learn
give donate | take receive
give | take
bring | take
come | go
save | spend waste
save | delete discard
save | lose
earn | spend
pay | earn receive charge
charge | waive refund
charge | discharge
refund | charge
exempt | liable
liable | exempt
renew | cancel expire lapse
renew extend | terminate cancel
keep retain stay remain | remove discard leave cancel quit
stay | leave go
marry | divorce
hire | rent_out
"""

#: Words that turn a sentence round by themselves. `free` and `zero` do so only to balance one.
NEGATORS = """
no not never none nothing nobody nowhere neither nor cannot without except excluding unless
hardly barely non minus
"""
IMPLICIT_NEGATORS = """
avoid waive exempt prohibit forbid ban disallow prevent refuse deny lack absent miss fail
impossible unable illegal unlawful unsafe unsuitable unavailable ineligible excluded exclude
invalid prohibited forbidden banned disqualify reject unless
"""
WEAK_NEGATORS = "free zero stop don"

#: Prefixes that turn a word into its opposite.
PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "de", "mis", "anti")
