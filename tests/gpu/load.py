"""Holds memory of the first GPU that is visible and keeps it busy, or does not: `load.py GIB SECONDS [busy|idle]`.

Through the driver's own library, so that it needs nothing but Python."""

import ctypes
import sys
import time


def check(code, what):
    if code != 0:
        raise SystemExit(f"{what} failed with {code}")


def main():
    gib, seconds, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    cuda = ctypes.CDLL("libcuda.so.1")
    check(cuda.cuInit(0), "cuInit")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    size = gib << 30
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)), "cuMemAlloc")
    print("holding", gib, "GiB", how, flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if how == "busy":
            for value in range(16):
                check(cuda.cuMemsetD8Async(memory, ctypes.c_ubyte(value), ctypes.c_size_t(size), None), "cuMemsetD8")
            check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        else:
            time.sleep(0.2)


main()
