# %% [markdown]
# # A week of writing, in pandas
#
# The pipeline's tables are Parquet with a Delta log, which many tools read. This notebook uses
# `deltalake` and pandas: no Spark, no Java, no server. Run it as a script, or cell by cell in an editor
# that knows `# %%` (VS Code, PyCharm, Spyder, Jupytext).
#
#     lorogo pipeline ingest --journal .lorogo --lake lake
#     lorogo pipeline materialise --lake lake
#     python examples/analysis/analysis.py lake

# %%
import sys
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable

lake = Path(sys.argv[1] if len(sys.argv) > 1 else "lake")
if not (lake / "lake.json").is_file():
    sys.exit(f"{lake} is not a lake: `lorogo pipeline ingest --journal .lorogo --lake {lake}` makes one")
pd.set_option("display.width", 110)

# %% [markdown]
# ## The tables
# Only the selected columns are read. `documents` also has earlier states, written by
# `materialise --as-of`; the latest ones are marked.

# %%
changes = DeltaTable(lake / "changes").to_pandas(
    columns=["document_id", "peer", "accepted_at", "ops", "inserted", "deleted"]
)
documents = DeltaTable(lake / "documents").to_pandas(
    columns=["document_id", "latest", "state", "chars", "updates", "update_bytes", "first_at", "last_at"]
)
documents = documents[documents["latest"]].set_index("document_id")
print(f"{len(changes)} changes in {len(documents)} documents")

# %% [markdown]
# ## Who wrote most
# A peer is a replica, not a person: one browser window, one run of a program.

# %%
by_peer = changes.groupby("peer")[["inserted", "deleted"]].sum()
by_peer["share"] = (by_peer["inserted"] / by_peer["inserted"].sum()).round(3)
print(by_peer.sort_values("inserted", ascending=False).head(10))

# %% [markdown]
# ## When
# `accepted_at` is the server's time, in UTC. Changes that are known only through a snapshot have none.

# %%
dated = changes.dropna(subset=["accepted_at"])
by_day = dated.groupby(dated["accepted_at"].dt.date)[["inserted", "deleted"]].sum()
print(by_day)
busiest = dated.groupby(dated["accepted_at"].dt.hour)["ops"].sum().idxmax() if len(dated) else None
print(f"the busiest hour begins at {busiest}:00 UTC")

# %% [markdown]
# ## Retention
# How much of the typed text remains? And how many bytes of updates does a character cost?

# %%
kept = documents[documents["state"] == "live"].copy()
typed = changes.groupby("document_id")["inserted"].sum()
kept["typed"] = typed.reindex(kept.index).fillna(0).astype(int)
kept["stays"] = (kept["chars"] / kept["typed"].where(kept["typed"] > 0)).round(2)
kept["bytes_per_char"] = (kept["update_bytes"] / kept["chars"].where(kept["chars"] > 0)).round(1)
print(kept.sort_values("chars", ascending=False)[["chars", "typed", "stays", "bytes_per_char"]].head(10))

# %% [markdown]
# ## Together
# Documents with several peers, and the evenness of their shares: 1.0 if all wrote the same amount.

# %%
written = changes.groupby(["document_id", "peer"])["inserted"].sum()
shares = written / written.groupby("document_id").transform("sum")
people = shares.groupby("document_id").size()
evenness = (1 / (people * (shares**2).groupby("document_id").sum())).round(2)
together = pd.DataFrame({"peers": people, "evenness": evenness})
print(together[together["peers"] > 1].sort_values("evenness", ascending=False).head(10))
