"""Siblings: words of one kind that exclude each other. Two questions that name different ones
ask about different things, however alike they read.
"""

from __future__ import annotations

#: One kind a line. A word may belong to several kinds.
KINDS = """
monday tuesday wednesday thursday friday saturday sunday weekday weekend
january february march april may june july august september october november december
spring summer autumn fall winter
morning afternoon evening night midnight noon lunchtime
today tomorrow yesterday tonight
second minute hour day week fortnight month quarter year decade century
daily weekly fortnightly monthly quarterly annual yearly hourly
christmas easter halloween thanksgiving new-year
breakfast brunch lunch dinner supper tea
first second third fourth fifth sixth seventh eighth ninth tenth last final next previous
red blue green yellow orange purple black white grey gray brown pink silver gold
gold silver bronze platinum diamond
small medium large
basic standard premium plus pro enterprise business student starter free family gold platinum advanced essential lite team professional economy first
economy business first premium
checking savings current joint isa mortgage brokerage loan deposit pension investment
savings current checking
student graduate postgraduate undergraduate apprentice
adult child kid baby infant toddler teenager teen senior pensioner student
man woman boy girl
mother father mum dad brother sister son daughter husband wife uncle aunt cousin grandmother grandfather grandson granddaughter nephew niece partner spouse colleague friend
member guest visitor customer employee contractor tenant landlord student staff
visa passport licence license permit certificate
car van lorry truck bus coach train tram taxi bike bicycle motorbike motorcycle plane flight boat ferry ship helicopter scooter
airport station port harbour stadium
hotel hostel restaurant cafe bar pub
gym pool spa sauna restaurant bar parking garden balcony
kitchen bathroom bedroom living-room garden garage loft hall toilet
home house flat apartment office shop store warehouse studio villa bungalow
house office shop garage
dog cat rabbit horse bird fish hamster
chicken beef pork lamb fish salmon turkey duck tofu
rice pasta bread potato noodle
peanut nut milk egg gluten soya wheat dairy shellfish sesame
coffee tea juice water beer wine
email phone post letter text chat fax sms
card cash cheque transfer paypal
phone mobile laptop tablet desktop computer pc mac printer router tv television camera console smartwatch watch
iphone android ipad windows mac macos linux ubuntu ios
windows mac macos linux ubuntu android ios chromebook
python java javascript typescript ruby rust golang php perl scala kotlin swift
word excel powerpoint outlook pdf csv json xml html
jpg jpeg png gif svg webp
mysql postgres postgresql sqlite oracle mongodb redis mariadb
aws azure gcp
chrome firefox safari edge opera
google microsoft apple amazon facebook meta twitter netflix tesla samsung
whatsapp telegram signal messenger
instagram facebook twitter youtube linkedin snapchat tiktok reddit quora pinterest
paypal klarna stripe zelle venmo
ach wire zelle swift sepa bacs chaps
debit credit prepaid
email password username pin address name number
username password pin
billing delivery shipping mailing home work postal email
radiator boiler shower toilet sink tap bath oven fridge freezer dishwasher dryer heater
oven microwave grill hob kettle toaster fryer
carpet curtain window oven sofa floor wall roof
gas electricity water internet broadband phone
home car travel life health pet building content dental landlord
ear nose throat eye tooth knee hip shoulder back neck arm leg foot hand wrist ankle elbow finger toe
heart lung liver kidney brain stomach skin
flu cold covid measles mumps malaria
cancer diabetes asthma arthritis stroke
paracetamol ibuprofen aspirin codeine penicillin amoxicillin
maths english history geography physics chemistry biology science french spanish german
football cricket rugby tennis golf hockey basketball baseball boxing
violin guitar piano drum flute
england scotland wales ireland britain france germany spain italy portugal netherlands belgium poland sweden norway denmark finland russia china japan korea india pakistan australia canada mexico brazil usa america uk us eu europe africa asia
london manchester birmingham leeds liverpool bristol edinburgh glasgow cardiff belfast brighton oxford cambridge paris rome berlin madrid lisbon dublin amsterdam brussels vienna prague moscow tokyo beijing shanghai delhi mumbai sydney melbourne toronto chicago boston
english french german spanish italian portuguese dutch russian chinese mandarin japanese korean arabic hindi welsh british american indian
north south east west central
left right centre middle
dollar euro pound yen yuan rupee franc usd eur gbp jpy cny inr chf aud cad
metre meter kilometre kilometer mile foot inch yard centimetre millimetre
gram kilogram ounce pound stone tonne milligram
litre liter pint gallon millilitre
celsius fahrenheit kelvin
byte kilobyte megabyte gigabyte terabyte
kb mb gb tb
mg g kg mcg lb oz
ml cl l
mm cm m km
oak pine birch maple
gold iron copper silver steel aluminium lead zinc
oxygen hydrogen nitrogen carbon helium
mercury venus earth mars jupiter saturn uranus neptune pluto
mathematician physicist chemist biologist engineer architect
president minister king queen senator governor mayor
author director producer actor singer composer
novel film song album play poem
cat2 cat3
bachelor master doctorate phd diploma
nursery primary secondary college university
nurse doctor pharmacist dentist optician vet physiotherapist surgeon
plumber electrician gardener cleaner builder decorator
invoice receipt statement quote contract
mortgage rent bill tax
vat income council inheritance corporation
birth death marriage divorce
read write
view edit
developer admin owner viewer editor
monthly annual
single double twin triple king queen
vegan vegetarian halal kosher
inbox spam draft
sms email push
wifi bluetooth ethernet
usb hdmi
"""
