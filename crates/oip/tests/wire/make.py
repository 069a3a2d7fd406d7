"""Makes the fixtures: every message of the protocol, written by the stock client's own classes.

    python -m venv venv && venv/bin/pip install 'tritonclient[grpc]==2.73.0'
    venv/bin/python crates/oip/tests/wire/make.py

Each field holds what its name says, so that a number given to the wrong field shows: a text is the
name itself, a whole number the sum of its letters (of seven bits), a boolean true.
"""

import pathlib

from tritonclient.grpc import model_config_pb2, service_pb2

HERE = pathlib.Path(__file__).parent

# Models here have no other parts than these.
PARTS = {
    "ModelConfig": {
        "name", "platform", "backend", "runtime", "version_policy", "max_batch_size", "input",
        "output", "dynamic_batching", "instance_group", "default_model_filename", "parameters",
        "model_transaction_policy", "response_cache",
    },
    "ModelInput": {"name", "data_type", "dims", "optional"},
    "ModelOutput": {"name", "data_type", "dims", "label_filename"},
    "ModelInstanceGroup": {"name", "count", "gpus", "kind"},
    "ModelDynamicBatching": {
        "preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering",
        "priority_levels", "default_priority_level", "default_queue_policy",
    },
}


def number(name):
    return sum(name.encode()) % 127 + 1


def value(field):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return float(number(field.name))
    if kind == field.CPPTYPE_BOOL:
        return True
    if kind == field.CPPTYPE_ENUM:
        return field.enum_type.values[-1].number
    if kind == field.CPPTYPE_STRING:
        is_bytes = field.type == field.TYPE_BYTES
        return field.name.encode() if is_bytes else field.name
    return number(field.name)


def fill(message):
    descriptor = message.DESCRIPTOR
    wanted = PARTS.get(descriptor.name)
    taken = set()
    for field in descriptor.fields:
        if wanted is not None and field.name not in wanted:
            continue
        if field.containing_oneof is not None:
            if field.containing_oneof.name in taken:
                continue
            taken.add(field.containing_oneof.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            held = field.message_type.fields_by_name["value"]
            for key in (field.name, "other"):
                fill(getattr(message, field.name)[key])
                if not held.message_type.fields:
                    raise SystemExit(f"nothing in {field.full_name}")
        elif field.message_type is not None and field.is_repeated:
            fill(getattr(message, field.name).add())
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name))
        elif field.is_repeated:
            getattr(message, field.name).extend([value(field)] * 2)
        else:
            setattr(message, field.name, value(field))
    return message


def main():
    for name, descriptor in service_pb2.DESCRIPTOR.message_types_by_name.items():
        message = fill(getattr(service_pb2, name)())
        (HERE / f"{name}.bin").write_bytes(message.SerializeToString(deterministic=True))
    # What stands for one thing or another, one by one.
    choices = service_pb2.ModelInferRequest()
    for field in service_pb2.InferParameter.DESCRIPTOR.fields:
        setattr(choices.parameters[field.name], field.name, value(field))
    (HERE / "parameters.bin").write_bytes(choices.SerializeToString(deterministic=True))
    policies = model_config_pb2.ModelConfig()
    policies.version_policy.specific.versions.extend([1, 2])
    policies.input.add(data_type=model_config_pb2.TYPE_BF16)
    (HERE / "policies.bin").write_bytes(policies.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
