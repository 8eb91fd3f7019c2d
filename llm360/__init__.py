"""llm360: a training run made addressable, reproducible and provable.

The library below the pipeline: it knows no DVC, no Hub, no params.yaml and no working directory.
"""

__version__ = "0.1.0"
