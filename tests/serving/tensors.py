"""Two rows of every type, with the edges of its range."""

import numpy as np

SAMPLES = {
    "BOOL": np.array([[True, False], [False, True]]),
    "UINT8": np.array([[0, 255], [1, 2]], np.uint8),
    "UINT16": np.array([[0, 65535], [1, 2]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1], [1, 2]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1], [1, 2]], np.uint64),
    "INT8": np.array([[-128, 127], [1, -2]], np.int8),
    "INT16": np.array([[-2**15, 2**15 - 1], [1, -2]], np.int16),
    "INT32": np.array([[-2**31, 2**31 - 1], [1, -2]], np.int32),
    "INT64": np.array([[-2**63, 2**63 - 1], [1, -2]], np.int64),
    "FP16": np.array([[0.5, -65504.0], [1e-7, -0.0]], np.float16),
    "FP32": np.array([[0.1, 3.4028235e38], [1e-45, -0.0]], np.float32),
    "FP64": np.array([[0.1, 1.7976931348623157e308], [5e-324, -0.0]], np.float64),
    "BYTES": np.array([[b"plain", "é€😀".encode()], [b"", b"a\"\\\n"]], object),
}

ONES = np.ones((1, 16), np.int32)
COUNT = np.arange(16, dtype=np.int32).reshape(1, 16)


def same(one, other):
    """To the last bit; NaN is NaN."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype == object:
        return one.tolist() == other.tolist()
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
