"""Ways to damage a packed folder on purpose."""

import json
import struct


def split(folder):
    """The header of ternarybert.safetensors as JSON, and the bytes after it."""
    data = (folder / "ternarybert.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(folder, header, payload):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "ternarybert.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)


def edit_config(folder, change):
    """Apply a function to config.json as a dictionary."""
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def forget_digest(folder):
    """Leave out the SHA-256, as a program would that rewrites the weights; the other checks must do."""
    edit_config(folder, lambda config: config["quantization_config"].pop("sha256"))


def edit_header(folder, change):
    header, payload = split(folder)
    change(header)
    join(folder, header, payload)
    forget_digest(folder)


def edit_array(folder, name, at, data):
    """Overwrite some bytes of one array."""
    header, payload = split(folder)
    begin = header[name]["data_offsets"][0] + at
    join(folder, header, payload[:begin] + data + payload[begin + len(data) :])
    forget_digest(folder)


def drop_tensor(folder, lost):
    """Take a plain tensor out of the file and out of the list, so that nothing but the model itself misses it."""
    header, payload = split(folder)
    begin, end = header.pop(lost)["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    join(folder, header, payload[:begin] + payload[end:])
    forget_digest(folder)
    edit_config(folder, lambda config: config["quantization_config"]["tensors"].pop(lost))
