"""Texts of a social stream: sentences with gaps, and the words that fill them.

Every word is written here or made of two that are (:func:`place_name`), so that nothing is said that nobody has read.
No word comes twice in a sentence, and the words of :mod:`~spatialstream.generate.events` come in none.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CORES", "FILLERS", "OPENERS", "PLACES", "TIMES", "place_name"]

OPENERS = """
hello
good morning
good evening
happy birthday {person}
finally home
so tired
what a day
dear neighbours
hello {person}
great news
small update
note to self
""".strip().splitlines()
"""Texts that may begin a post, or be a post of their own."""

CORES = """
everybody talks about {topic}
greetings from {name}
thank you {person} for the {thing}
{food} for dinner
{food} time
new {thing} day
{adjective} {sky} out there
looking for a {thing}
we won the match
the {transport} is late
missed my {transport} once more
waiting for the {transport}
had great {food} with {person}
the best {food} i ever had
anyone up for {food}
who wants to go {activity}
went {activity} with {person}
thinking about {activity}
lost my {thing}
found a {colour} {thing}
somebody left a {thing} behind
saw a {colour} {animal}
the {animal} is asleep
my {animal} wants to go out
what a {adjective} {sky}
such {adjective} weather
it is raining
the sun is out
meeting {person} and {person}
lunch with {person}
dinner at {name} {venue}
coffee before {activity}
reading about {topic}
talking about {topic} with {person}
learning {topic} is {adjective}
working on {topic}
class on {topic} was {adjective}
the queue is {adjective}
traffic is {adjective}
road works are back
this {venue} is so {adjective}
the {venue} was {adjective}
they opened a {adjective} {venue}
my {relative} loves {food}
{relative} made {food} for us
called my {relative}
my {relative} bought a {thing}
selling a {colour} {thing}
can anyone recommend a {venue}
do you know a {adjective} {venue}
where can i find {adjective} {food}
the {name} team plays
{name} against {name}
moved to {name} road
walking from {name} to {name}
the path through {name} is {adjective}
got tickets for {name}
photos of {name} are {adjective}
we should visit {name}
the view over {name} is {adjective}
the shop next to {name} {venue} has {food}
someone is playing the {instrument}
practising the {instrument}
my neighbour plays the {instrument}
cannot find my {thing}
please bring a {thing}
never buying a {thing} like that
the {transport} to {name} is {adjective}
took the {transport} to {name}
cycling past {name} {venue}
""".strip().splitlines()
"""Complete sentences, which a place and a time may follow."""

PLACES = """
in {city}
at {name} {venue}
near {name} {venue}
by {name} bridge
on {name} street
around {name}
behind {name} {venue}
between {name} and {name}
outside {name} {venue}
""".strip().splitlines()
"""Places; a post that names its city uses the first."""

TIMES = """
today
again
right now
this {part}
on {weekday}
after work
for a change
just like last {weekday}
and it feels {adjective}
but not for long
though it looks like rain
with the whole family
and nobody complains
and that makes me happy
because {person} said so
so much for a quiet {part}
""".strip().splitlines()
"""Times and comments."""


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


FILLERS: Mapping[str, tuple[str, ...]] = {
    "person": _split("""
        anna ben maria david sara tom lena omar julia sam emma ali nina paul leila jonas clara noah sofia leo ella
        lucas mia marco hana peter yuki carlos amina felix rosa ivan lucy kofi elena hugo priya anton zoe mateo ingrid
        arjun freya diego mei oscar aisha tomas ruth kenji alice samir olga ravi helen pablo nora bruno farah emil
    """),
    "relative": _split("""
        mother sister brother father grandmother aunt uncle cousin daughter son grandfather niece nephew
    """),
    "food": _split("""
        coffee pizza soup bread noodles cake tea pasta rice curry salad dumplings pancakes sushi tacos sandwiches
        cheese apples falafel chocolate lemonade ramen waffles breakfast cookies mangoes paella kebab burgers pie
        porridge omelette lasagne hummus strawberries biscuits stew samosas gelato muffins couscous tofu pretzels
        risotto cherries oranges lentils pickles popcorn yoghurt
    """),
    "thing": _split("""
        bike phone book jacket umbrella camera bag scarf laptop hat ticket watch guitar sofa lamp key notebook
        backpack tent chair kettle charger jumper wallet skateboard desk mirror helmet bottle glove printer map
        suitcase blanket telescope sledge toaster clock kite teapot stroller ladder rucksack puzzle calendar
    """),
    "venue": _split("""
        station park market cafe library school museum bakery harbour square stadium bridge hall theatre hotel garden
        pool church beach tower university hospital playground zoo cinema gallery campsite airport castle lighthouse
        bookshop workshop fountain mill pier orchard temple kiosk arena observatory
    """),
    "adjective": _split("""
        good great nice beautiful long quiet lovely busy slow cold warm amazing strange full empty wonderful huge
        small new old terrible loud fresh cheap expensive bright dusty sunny gorgeous boring exciting perfect crowded
        cosy difficult friendly famous charming peaceful splendid gloomy tidy sleepy curious delightful foggy
    """),
    "sky": _split("sunset sky sunrise rainbow morning cloud moon evening afternoon mist"),
    "colour": _split("""
        red blue green black white yellow brown grey orange purple silver golden turquoise striped tiny
    """),
    "animal": _split("""
        dog cat bird fox horse squirrel duck heron rabbit owl hedgehog swan cow deer goose frog turtle pigeon seal
        goat sheep crow lizard kingfisher badger hamster stork parrot otter beetle
    """),
    "transport": _split("train bus tram ferry metro taxi boat plane shuttle"),
    "activity": _split("""
        running swimming shopping cycling hiking climbing skating fishing camping sailing jogging rowing bowling
        surfing skiing knitting birdwatching kayaking gardening stargazing
    """),
    "topic": _split("""
        football history maths physics cooking politics chemistry painting grammar poetry economics chess photography
        biology geography astronomy programming architecture design statistics philosophy volcanoes dinosaurs
        recycling beekeeping pottery trams spelling sculpture archaeology
    """),
    "instrument": _split("piano violin trumpet cello flute accordion saxophone harp clarinet banjo oboe ukulele"),
    "part": _split("morning evening afternoon week weekend"),
    "weekday": _split("monday friday sunday saturday thursday tuesday wednesday"),
}
"""Words for each gap, the most frequent first. There are also ``{name}``, the name of a place, and ``{city}``."""

_FIRST = _split("""
    oak mill river stone north green king spring wood lake hill bridge church queen south high ash silver west market
    east long white fair wind rose maple castle elm black birch clear sand new old red brook bear deer fox heron crane
    eagle hazel holly willow cedar linden alder cherry apple pear plum berry barley wheat corn clover fern moss
    heather thistle lily iris daisy poppy marsh moor heath meadow field forest grove garden orchard valley canyon
    cliff rock granite slate chalk clay amber copper iron gold pearl coral crystal diamond emerald ruby sun moon sky
    cloud rain snow frost ice storm thunder summer winter autumn morning evening harbour bay cape island shell sail
    anchor ship mast tide wave pebble otter badger hare robin wren lark finch raven falcon hawk owl dove sparrow
    salmon pike carp tower gate arch wall well fountain smith baker miller potter weaver mason carter shepherd fisher
    hunter farmer abbot bishop duke earl knight abbey chapel temple crown saint angel good bold bright blue brown grey
    pine spruce walnut chestnut olive lemon ginger saffron juniper laurel myrtle lavender mint sage basil honey bee
    lantern candle ember kettle wagon saddle bramble nettle acorn pepper velvet linen cotton maiden upper lower middle
    inner outer little great deep broad narrow low merry happy noble royal
""")
_LAST = _split("""
    field ford wood bridge brook dale hill ton ham stead mouth wick gate side park view port well burn beck combe
    bourne mere shore bank crest haven holm hurst leigh lake moor mount point ridge rock stone vale ville ward way
    worth yard den cliff croft cross edge end fall farm fell fold glade glen grange green hall heath heights house
    isle lea lock lodge marsh meadow mill nook orchard path pool quay rest rise row run sands slope spring
    square strand street terrace thorpe thwaite town tree trail turn valley walk wall weald wharf wold works bay beach
    bend bower castle chase close common corner cottage court dell drive estate garden garth hamlet harbour hollow
    island lawn maze mews mile outlook parade parish passage pasture plain plaza prospect reach reef road sound spire
    stable station steps summit swell tarn tor tower village villas vista warren weir wheel wing woods anchor arbour
    arcade arch avenue bell border brae brow burgh bury caster chapel church cairn canal cape cove crag creek crescent
    crossing ferry fields fen flats forge fountain gap gardens gorge harvest haugh hatch inch inlet kirk knoll leaf
    light loch
""")
_PAIRS = len(_FIRST) * len(_LAST)
_STRIDE = 7_919
"""A prime, so that each pair is used once, and consecutive names share no part."""


def place_name(rank: int) -> str:
    """The name of the place of this rank, such as ``millbrook``; with a number, once all are used up."""
    first, last = divmod(rank * _STRIDE % _PAIRS, len(_LAST))
    return f"{_FIRST[first]}{_LAST[last]}{rank // _PAIRS + 1 if rank >= _PAIRS else ''}"
