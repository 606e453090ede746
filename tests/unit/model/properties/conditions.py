"""Random properties, values and conditions in CQL2 JSON; values are few, so that conditions often meet them."""

from spatialstream.model.properties.declared import Properties

DECLARED = Properties.parse(
    ["country:keyword", "the place:keyword", "priority:number", "depth:number", "at:time", "open:boolean"]
)
KEYWORDS = [
    "",
    "d",
    "de",
    "deep",
    "fr",
    "de fr",
    "it's",
    "100%",
    "a_b",
    "a\\b",
    "é",
    "日本",
    "\U0001f600",
    "NULL",
    'q"q',
]
NUMBERS = [0.0, 1.0, 2.0, -1.0, 2.5, 0.1, -0.1, 1e300, -1e300, 5e-324, 2.0**53, 2.0**53 + 2.0, 3.0]
TIMES = [0, 1, -1, 999, 86_400_000, 1_767_225_600_000, 1_767_225_600_001, -62_135_596_800_000]
PREFIXES = ["", "d", "de", "100\\%", "a\\_", "a\\\\", "日", "it's", "x"]


def values(random):
    """The values of an object, some of them missing."""
    given = {
        "country": random.choice(KEYWORDS),
        "the place": random.choice(KEYWORDS),
        "priority": random.choice(NUMBERS),
        "depth": random.choice(NUMBERS),
        "at": random.choice(TIMES),
        "open": random.random() < 0.5,
    }
    return {name: value for name, value in given.items() if random.random() < 0.8}


def literal(random, kind):
    """A value of a type in CQL2 JSON."""
    match kind:
        case "keyword":
            return random.choice(KEYWORDS)
        case "number":
            number = random.choice(NUMBERS)
            return int(number) if number.is_integer() and random.random() < 0.5 else number
        case "boolean":
            return random.random() < 0.5
    moments = [
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00.001Z",
        "1970-01-02T01:00:00+01:00",
        "2026-01-01T00:00:00.0004Z",
    ]
    return {"date": "2026-01-01"} if random.random() < 0.3 else {"timestamp": random.choice(moments)}


def condition(random, depth=3):
    """A condition in CQL2 JSON."""
    if depth and random.random() < 0.6:
        op = random.choice(["and", "or", "not"])
        return {
            "op": op,
            "args": [condition(random, depth - 1) for _ in range(1 if op == "not" else random.randint(1, 3))],
        }
    name, kind = random.choice(DECLARED.types)
    there = {"property": name}
    ops = ["=", "<>", "in", "isNull"]
    ops += [] if kind == "boolean" else ["<", "<=", ">", ">=", "between"]
    op = random.choice(ops + ["like"] * 2 * (kind == "keyword"))
    match op:
        case "isNull":
            return {"op": op, "args": [there]}
        case "between":
            return {"op": op, "args": [there, literal(random, kind), literal(random, kind)]}
        case "in":
            return {"op": op, "args": [there, [literal(random, kind) for _ in range(random.randint(1, 4))]]}
        case "like":
            return {"op": op, "args": [there, random.choice(PREFIXES) + random.choice(["%", "%", ""])]}
    sides = [there, literal(random, kind)]
    return {"op": op, "args": sides if random.random() < 0.7 else sides[::-1]}
