"""ONNX models made of nothing but bytes, so that no test needs the package."""


def _varint(number):
    out = b""
    while True:
        number, low = number >> 7, number & 127
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def _field(number, value):
    """One field of a protobuf message: a whole number, text, or the bytes of another message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    value = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _value(name, columns):
    """A float input or output with any number of rows."""
    shape = _field(1, _field(2, "N")) + _field(1, _field(1, columns))
    return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))


def one_operator(operator, columns=2):
    """A model that applies one operator to `X`, a float matrix, and calls the result `Y`."""
    node = _field(1, "X") + _field(2, "Y") + _field(3, "only") + _field(4, operator)
    graph = _field(1, node) + _field(2, "g") + _field(11, _value("X", columns)) + _field(12, _value("Y", columns))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))
