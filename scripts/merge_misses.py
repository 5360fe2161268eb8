#!/usr/bin/env python3
"""Merges TLB misses of many machines, and holds the result against tierscope's own parser.

    merge_misses.py TABLES OUT

TABLES is a directory that `tierscope tlb report CAPTURE --parquet TABLES --host NAME` wrote a partition of on each
machine. From its tables `settled` and `owners` alone this makes, in OUT, as Parquet:

    pages    machine, pid, page, bytes, exact, mean_840, mixed_840: misses by page, of all machines
    objects  machine, pid, object, object_start, misses_840: the same by object
    fleet    object, machines, misses_840: the same by name, over all machines

A block's misses are shared among its pages, so parts are of 1/840. Then it compares `pages` and `objects` with those
that the parser wrote into TABLES, row by row: any difference is shown, and the exit code is 1.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SHARE = 840
PAGE = ["machine", "pid", "page", "bytes"]
OBJECT = ["machine", "pid", "object", "object_start"]


def of_kind(kind: str):
    """Sum of the misses of that kind."""
    return f.sum(f.when(f.col("kind") == kind, f.col("misses_840")).otherwise(0))


def pages_of(settled: DataFrame) -> DataFrame:
    """Misses by page. Exact ones are whole: their sum in parts divides without a rest."""
    sums = settled.groupBy(PAGE).agg(
        (of_kind("exact") / SHARE).cast("long").alias("exact"),
        of_kind("mean").alias("mean_840"),
        of_kind("mixed").alias("mixed_840"),
    )
    return sums.where("exact + mean_840 + mixed_840 > 0")


def objects_of(settled: DataFrame, owners: DataFrame) -> DataFrame:
    """Misses by the object that a page belongs to."""
    sums = settled.join(owners, PAGE).groupBy(OBJECT).agg(f.sum("misses_840").alias("misses_840"))
    return sums.where("misses_840 > 0")


def differences(name: str, ours: DataFrame, parsers: DataFrame) -> int:
    """Rows that only one of both has; shows some."""
    parsers = parsers.select(ours.columns)
    count = 0
    for who, rows in (("only here", ours.exceptAll(parsers)), ("only the parser", parsers.exceptAll(ours))):
        rows = rows.cache()
        count += rows.count()
        for row in rows.take(5):
            print(f"{name}: {who}: {row.asDict()}", file=sys.stderr)
    return count


def main(tables: str, out: str) -> int:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("merge misses")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    read = lambda table: spark.read.option("basePath", f"{tables}/{table}").parquet(f"{tables}/{table}")
    # A host that is called 1 is a name too.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    settled, owners = read("settled").cache(), read("owners")
    pages, objects = pages_of(settled).cache(), objects_of(settled, owners).cache()
    fleet = objects.groupBy("object").agg(
        f.countDistinct("machine").alias("machines"), f.sum("misses_840").alias("misses_840")
    )
    for name, table in (("pages", pages), ("objects", objects), ("fleet", fleet)):
        table.write.mode("overwrite").parquet(f"{out}/{name}")
    parsed = read("pages").where("exact + mean_840 + mixed_840 > 0")
    wrong = differences("pages", pages, parsed)
    wrong += differences("objects", objects, read("objects").where("misses_840 > 0"))
    misses = settled.agg(f.sum("misses_840")).first()[0] or 0
    machines = settled.select("machine").distinct().count()
    print(f"{machines} machines, {misses / SHARE:.0f} misses on {pages.count()} pages of {objects.count()} objects")
    print(f"{wrong} rows differ from the parser's")
    spark.stop()
    return 1 if wrong or machines == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
