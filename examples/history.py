# %% [markdown]
# # Who wrote what, and when
#
# The history of your documents as tables. Run it as a script, or cell by cell in an editor that knows `# %%`
# (VS Code, PyCharm, Spyder, Jupytext).
#
#     make run                                          # in another shell; edit some documents
#     .venv/bin/python examples/history.py .lorogo      # or the data folder of a server, or an archive's URL

# %%
import atexit
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lorogo_pipeline import Settings, build, register
from lorogo_pipeline.spark.session import open_session

journal = sys.argv[1] if len(sys.argv) > 1 else ".lorogo"
folder = TemporaryDirectory(prefix="lorogo-example-")
lake = sys.argv[2] if len(sys.argv) > 2 else str(Path(folder.name) / "lake")

session = open_session()
spark = session.__enter__()
atexit.register(session.__exit__, None, None, None)  # in a script use `with open_session() as spark:`
register(spark)

# %% [markdown]
# ## Journals become tables
# `ingest` reads new updates, each once, however often it runs. `materialise` replays them into documents.

# %%
pipeline = build(spark, Settings(lake=lake, journals=(journal,)))
print(pipeline.ingest())
print(pipeline.materialise())

# %% [markdown]
# ## Who wrote most
# `changes` has a row for every run of operations in an update.

# %%
pipeline.sql("""
    select document_id, peer, count(*) as updates, sum(inserted) as inserted, sum(deleted) as deleted
    from changes
    group by document_id, peer
    order by inserted desc
    limit 10
""").show(truncate=False)

# %% [markdown]
# ## How much was typed
# The same table, by the hour, as a DataFrame. Text deleted concurrently by two people counts twice.

# %%
from pyspark.sql import functions as f

typed = (
    pipeline.dataframe("changes")
    .where("accepted_at is not null")
    .groupBy("document_id", f.date_trunc("hour", "accepted_at").alias("hour"))
    .agg(f.sum("inserted").alias("inserted"), f.sum("deleted").alias("deleted"))
    .orderBy("document_id", "hour")
)
typed.show(20, truncate=False)

# %% [markdown]
# ## Yesterday's text
# Any document at any time; here at the middle of its history.

# %%
busiest = pipeline.sql("""
    select document_id, min(accepted_ns) as first, max(accepted_ns) as last
    from updates group by document_id order by count(*) desc limit 1
""").first()
if busiest is not None:
    middle = (busiest["first"] + busiest["last"]) // 2
    print(pipeline.materialise(as_of_ns=middle, documents=[busiest["document_id"]]))
    pipeline.sql("""
        select document_id, as_of, latest, chars, substr(text, 1, 60) as text
        from documents_as_of where document_id in (select document_id from documents_as_of where not latest)
        order by latest
    """).show(truncate=False)

# %% [markdown]
# ## Straight from the journal
# Without a lake: the journal itself is a Spark source. Filters reach its index.

# %%
records = spark.read.format("lorogo.journal").option("payload", "false").load(journal)
records.groupBy("kind").agg(f.count("*").alias("records"), f.sum("bytes").alias("bytes")).show()

# %%
atexit.unregister(session.__exit__)
session.__exit__(None, None, None)
folder.cleanup()
