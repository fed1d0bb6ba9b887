"""Words that may stand for each other in a question without changing its answer."""

from __future__ import annotations

#: One concept a line.
CONCEPTS = """
cost price fee charge pricing expense rate tariff
pay settle
buy purchase
obtain get receive acquire secure
cancel terminate end
stop cease
start begin commence
change switch modify alter update amend edit adjust swap
update upgrade
delete remove erase
delivery shipping shipment postage
deliver ship
parcel package
shop store
repair fix mend
fix resolve solve sort
broken faulty damaged
fault problem issue defect error trouble
kid child children youngster
baby infant newborn
mum mom mother
dad father
doctor physician gp
movie film
cinema theater theatre
television tv telly
phone telephone
mobile cellphone
photo picture photograph image pic
car vehicle automobile
flat apartment
house home property
holiday vacation leave
trip journey travel
luggage baggage bag
job employment occupation
work job
salary wage pay earnings
boss manager employer
staff employee worker
employee worker
firm company business organisation organization
customer client
buyer purchaser
seller vendor
renter tenant
landlord landlady
guarantee warranty
insurance policy cover coverage
cover coverage
quote quotation estimate
bill invoice
fine penalty
licence license permit
form application
apply application
register registration enrol enroll sign_up
subscribe subscription
member membership
join joining
invite invitation
meeting appointment
booking reservation
book reserve
select choose pick
find locate
see view
show display
check verify confirm
tell inform
ask request
request order
need require must
necessary required needed
want wish would_like
use utilise utilize
make create
build construct
big large
small little
fast quick rapid
fastest quickest
quickly fast rapidly
easy simple
hard difficult
best top
cheap inexpensive affordable
expensive costly pricey
free complimentary
correct right
wrong incorrect
maximum max
minimum min
limit cap maximum allowance
allowance quota entitlement
amount quantity
number amount
approximately about roughly
usually normally typically
often frequently
now currently
at_once immediately straightaway
sometimes occasionally
drawback downside disadvantage con
benefit advantage pro upside
reason cause
purpose aim goal
result outcome
effect impact
symptom sign
illness disease sickness
medicine medication drug
dose dosage
cure treatment remedy
lawyer solicitor attorney
police cop
university college uni
school academy
pupil student
teacher tutor
lesson class course
grade mark
exam test
author writer
writer write author
singer sing
founder found
inventor invent
owner own
creator create
director direct
designer design
winner win
leader lead head
capital
town city
country nation
area region zone
road street
shut close closed
closing close
open opening
hour time
duration length
deadline cutoff due
begin start
finish end complete
leave depart
arrive get_to reach
park parking
wait waiting
cook cooking
roast roasting
safe safely
child kid
food meal
dish meal
takeaway takeout
meal dish
drink beverage
allergic allergy
coeliac celiac gluten
recipe
clean cleaning
rubbish waste trash garbage
bin dustbin
collection pickup collect
electricity power electric
outage cut
heating heater
broadband internet wifi
wifi wireless
website site
app application
program software
login log_in sign_in
logout log_out sign_out
sso single_sign_on
password passcode
username login
account profile
card
lock freeze block
unlock unfreeze unblock
reset recover
enable activate turn_on switch_on
disable deactivate turn_off switch_off
install set_up setup fit fitting installation
replacement replace new
connect link
transfer move send
money cash fund
refund reimburse reimbursement money_back repayment
deposit pay_in
withdraw take_out withdrawal
savings saving
pension retirement
loan credit
mortgage
tax duty
taxable tax
interest
balance
statement
overdraft
notice
lodge file submit raise
dispute
complaint complain
report notify
claim claiming
proof evidence
document paperwork
copy duplicate
page
letter
message text
email mail
mailing email
call ring phone
contact reach
speak talk
answer reply response
meaning mean
definition define
explain describe
difference differ distinguish
similar alike
method way
app
upload
download
language
translate translation
word
learn study
improve enhance increase
lose reduce
weight
gain
increase raise boost
decrease reduce lower
include contain come_with
included covered
offer provide supply
available offer
allow permit let
allowed permitted
able can
entitle entitled eligible qualify
eligible qualify
entitlement entitled
suitable appropriate
compulsory mandatory obligatory
adult grownup
person people individual
man guy
woman lady
friend mate
partner spouse
year annual annually yearly
month monthly
day daily
week weekly
hour hourly
annual yearly
departure depart
settle clear
submit send
mature maturity
waive free
eliminate
stolen theft steal
missing lost
lost lose
missed miss
visit visiting
prepare preparation
ready
expire expiry expiration
renew renewal
switch change move
provider supplier
plan tier package
tier level
upgrade higher
option choice
customer
enroll enrol
processing process
business_day working_day
kick_in apply
belong
file
user
workspace
kick remove
stay
room
travel travelling
flight fly flying
seat sit
delay late delayed
cold lukewarm
warm
usa us america united_states
uk united_kingdom britain
eu european_union
gp doctor
id identification
pc computer
ceo chief_executive
ai artificial_intelligence
ml machine_learning
"""
