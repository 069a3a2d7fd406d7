"""Reads and writes Falaj's object format with the Python `tink` package, as an outside oracle.

Usage: tink_oracle.py seal|open KEY_HEX AAD_HEX < input > output

The key set is the one the format documents: AES256-GCM-HKDF streaming, HKDF-SHA256, 64 KiB
ciphertext segments, no key prefix.
"""

import io
import sys

import tink
from tink import secret_key_access, streaming_aead
from tink.proto import aes_gcm_hkdf_streaming_pb2, common_pb2, tink_pb2

SEGMENT = 64 * 1024


class KeepOpen(io.BytesIO):
    """Tink closes the stream it wrote to; the bytes are wanted afterwards."""

    def close(self):
        pass


def primitive(key):
    value = aes_gcm_hkdf_streaming_pb2.AesGcmHkdfStreamingKey(
        version=0,
        params=aes_gcm_hkdf_streaming_pb2.AesGcmHkdfStreamingParams(
            ciphertext_segment_size=SEGMENT,
            derived_key_size=32,
            hkdf_hash_type=common_pb2.HashType.SHA256,
        ),
        key_value=key,
    )
    keyset = tink_pb2.Keyset(primary_key_id=1)
    keyset.key.add(
        key_data=tink_pb2.KeyData(
            type_url="type.googleapis.com/google.crypto.tink.AesGcmHkdfStreamingKey",
            value=value.SerializeToString(),
            key_material_type=tink_pb2.KeyData.SYMMETRIC,
        ),
        status=tink_pb2.KeyStatusType.ENABLED,
        key_id=1,
        output_prefix_type=tink_pb2.OutputPrefixType.RAW,
    )
    handle = tink.proto_keyset_format.parse(keyset.SerializeToString(), secret_key_access.TOKEN)
    return handle.primitive(streaming_aead.StreamingAead)


def main():
    mode, key, aad = sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
    streaming_aead.register()
    data = sys.stdin.buffer.read()
    aead = primitive(key)
    if mode == "seal":
        out = KeepOpen()
        with aead.new_encrypting_stream(out, aad) as stream:
            stream.write(data)
        result = out.getvalue()
    else:
        with aead.new_decrypting_stream(io.BytesIO(data), aad) as stream:
            result = stream.read()
    sys.stdout.buffer.write(result)


if __name__ == "__main__":
    main()
