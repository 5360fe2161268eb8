"""Records in a dictionary: the newest hundredth is updated; one of a thousand updates is of any."""

import random

RECORDS = 400_000
HOT = RECORDS // 100

table = {number: [number, "name %d" % number, float(number)] for number in range(RECORDS)}
draw = random.Random(1)
print("ready", flush=True)
operations = 0
while True:
    for number in range(RECORDS - HOT, RECORDS):
        record = table[number]
        record[2] += record[0]
        operations += 1
        if operations % 1000 == 0:
            table[draw.randrange(RECORDS)][2] += 1.0
