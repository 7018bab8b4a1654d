"""Document history as tables, on Spark through PySpark (docs/PIPELINE.md).

from lorogo_pipeline import Settings, build, register

register(spark)                                    # spark.read.format("lorogo.journal") and so on
pipeline = build(spark, Settings(lake="lake", journals=(".lorogo/server",)))
pipeline.ingest()
pipeline.materialise()
pipeline.sql("select document_id, chars from documents").show()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorogo_pipeline.pipeline import Pipeline, Settings, build
    from lorogo_pipeline.sources.registration import register

__all__ = ["Pipeline", "Settings", "build", "register"]

_HOMES = {
    "Pipeline": "pipeline",
    "Settings": "pipeline",
    "build": "pipeline",
    "register": "sources.registration",
}


def __getattr__(name: str) -> Any:
    """Import on first use: a worker that replays a document needs neither deltalake nor a client."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
