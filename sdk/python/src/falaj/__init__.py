"""Features of Falaj: training sets, latest values, pushes."""

from ._error import FalajError
from ._store import FeatureStore
from ._online import OnlineFeatures
from ._training import TrainingSet

__all__ = ["FalajError", "FeatureStore", "OnlineFeatures", "TrainingSet"]
__version__ = "0.1.0"
