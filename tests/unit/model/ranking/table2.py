"""The example of Pastri (Ray and Nickerson, JOSIS 24, 2022): Table 1, the query of section 3.2, and Table 2."""

from __future__ import annotations

from datetime import date

DAY = 86_400_000

ASKED = ("best", "steak")
RADIUS = 500.0
ALPHA = 0.2
HALF_LIFE = 64 * DAY

DOCUMENTS = {
    14: ("unbelievable lobster taco", date(2020, 6, 29), 194.0),
    13: ("best T-bone steak", date(2020, 6, 28), 450.0),
    12: ("delicious lobster roll", date(2020, 6, 21), 250.0),
    11: ("nice steak", date(2020, 6, 21), 694.0),
    10: ("great shrimp and steak", date(2020, 6, 17), 294.0),
    9: ("smoked salmon waffle", date(2020, 6, 14), 219.0),
    8: ("nice Hawaiian pizza", date(2020, 6, 14), 581.0),
    7: ("excellent fajitas", date(2020, 6, 12), 262.0),
    6: ("very nice red snapper", date(2020, 6, 12), 400.0),
    5: ("great Vietnamese", date(2020, 6, 5), 394.0),
    4: ("best grilled steak", date(2020, 6, 3), 450.0),
    3: ("superb steak", date(2020, 5, 30), 294.0),
    2: ("very good enchiladas", date(2020, 5, 28), 575.0),
    1: ("best chimichangas ever", date(2020, 5, 16), 469.0),
}
"""Table 1: text, day and distance of each document."""

WORDS = {number: tuple(text.split()) for number, (text, _, _) in DOCUMENTS.items()}
"""The words of each; "T-bone" is one."""

AGE = {number: (date(2020, 6, 30) - day).days * DAY for number, (_, day, _) in DOCUMENTS.items()}
"""The age of each at the time of the query, ms."""

RANKING = {13: 0.522, 4: 0.623, 11: 0.731, 10: 0.887, 3: 0.948}
"""Table 2, in its order."""

FREQUENCY_OF_STEAK = 4
"""By which the scores of Table 2 come out; Table 1 has it five times."""
