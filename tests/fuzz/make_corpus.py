#!/usr/bin/env python3
"""Writes the hand-made seeds in corpus/; the others are inputs that a target once found. Needs Pillow.

The targets also start from configs/ and tests/unit/image/files; see scripts/workshop/fuzz.
"""
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

from PIL import Image

CORPUS = Path(__file__).resolve().parent / "corpus"
IMAGES = CORPUS.parents[1] / "unit/image/files"


def write(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def recipes():
    ten = ", ".join
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{ten([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    for name, text in {
        "alias_bomb": bomb,
        "anchors_in_anchors": "a: " + "".join(f"&a{i} [" for i in range(60)) + "1," * 300 + "]" * 60,
        "alias_in_itself": "data: &d {transforms: *d}\n",
        "aliases": "seed: &n 7\ndata: {size: *n}\n",
        "deep_brackets": "seed: " + "[" * 3000 + "]" * 3000,
        "deep_maps": "".join(" " * i + "a:\n" for i in range(70)),
        "dashes": "data:\n  transforms:\n    " + "- " * 300,
        "question_marks": "? " * 300,
        "utf16": "seed: 1\n".encode("utf-16"),
        "byte_order_mark_and_crlf": "\ufeffseed: 1\r\nname: x\r\n",
        "nul": b"seed: 1\nname: a\0b\n",
        "escaped_nul": 'name: "a\\0b"\n',
        "escaped_surrogate": 'name: "\\ud800"\n',
        "escapes": 'name: "\\x07\\t\\n\\e\\u0085\\u2028\\U0001F600\\"\\\\"\n',
        "two_documents": "seed: 1\n---\nseed: 2\n",
        "merge_key": "a: &a {seed: 1}\n<<: *a\n",
        "tags": "seed: !!int 1\nname: ! x\ndata: !!python/object {}\n",
        "duplicate_key": "seed: 1\nseed: 2\n",
        "odd_keys": "{[a]: 1, {b: c}: d, ~: e}\n",
        "blocks": "name: |\n  a\n  b\noutput_dir: >-\n  c\n\n  d\n",
        "numbers": "optimizer: {lr: 1e-3, momentum: .5}\nseed: 010\ntrain: {max_time: 1.5h, epochs: .inf}\n"
        "data: {memory_limit: 4 GiB, size: 0x10}\n",
        "transforms": "data: {transforms: [{resize: [8, 9]}, random_horizontal_flip, {random_crop: {size: 4, padding: "
        "1}}, "
        "{normalize: {mean: [0.1, 0.2, 0.3], std: 0.5}}]}\n",
        "two_files_and_overrides": "optimizer: {name: adamw, betas: [0.9, 0.99]}\n\n%\noptimizer: {name: sgd, "
        "momentum: 0.9}\n"
        "optimizations: {amp: true}\n\n%\noptimizations.amp={dtype: float16}\n%\nseed=null\n%\nmodel.name=mlp",
    }.items():
        write("recipe", name, text)


def cifar10():
    record = bytes(i * 7 % 256 for i in range(3072))
    write("cifar10", "two_records", b"\0" + record + b"\x09" + record[::-1])
    write("cifar10", "label_10", b"\x0a" + record)
    write("cifar10", "one_byte_more", b"\1" + record + b"\1")
    write("cifar10", "one_byte_less", b"\1" + record[:-1])


def jpegs():
    colours = (IMAGES / "420.jpg").read_bytes()
    frame = colours.index(b"\xff\xc0")

    def sized(height, width, file=colours, at=frame):
        return file[: at + 5] + struct.pack(">HH", height, width) + file[at + 9 :]

    write("jpeg", "65500x1", sized(1, 65500))
    write("jpeg", "1x65500", sized(65500, 1))
    write("jpeg", "65000x65000", sized(65000, 65000))
    write("jpeg", "no_rows", sized(0, 83))
    write("jpeg", "taller_than_its_data", sized(400, 83))
    for length in (3, 10, frame + 4, len(colours) // 2, len(colours) - 2):
        write("jpeg", f"cut_at_{length}", colours[:length])
    progressive = (IMAGES / "progressive.jpg").read_bytes()
    last = progressive.rindex(b"\xff\xda")
    write("jpeg", "many_scans", progressive[:-2] + progressive[last:-2][:40] * 60 + b"\xff\xd9")
    write("jpeg", "progressive_large_header", sized(16384, 5461, progressive, progressive.index(b"\xff\xc2")))
    for name, mode, options in [
        ("tiny", "RGB", {}),
        ("tiny_progressive", "RGB", {"progressive": True}),
        ("tiny_cmyk", "CMYK", {}),
        ("tiny_grey", "L", {}),
        ("tiny_444", "RGB", {"subsampling": 0}),
    ]:
        file = io.BytesIO()
        Image.effect_noise((17, 9), 60).convert(mode).save(file, "JPEG", quality=30, **options)
        write("jpeg", name, file.getvalue())


def pngs():
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    def png(width, height, depth, colour, rows, interlace=0, before=b""):
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
        return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

    write("png", "65500x1", png(65500, 1, 8, 0, b"\0"))
    write("png", "65000x65000", png(65000, 65000, 16, 6, b"\0"))
    write("png", "largest", png(2**31 - 1, 2**31 - 1, 1, 0, b"\0"))
    write("png", "no_columns", png(0, 4, 8, 0, b"\0"))
    write("png", "grey16_2x2", png(2, 2, 16, 0, b"\0\1\2\3\4" * 2))
    write("png", "rgba16_1x1", png(1, 1, 16, 6, b"\0" + bytes(range(8))))
    write("png", "interlaced_palette", png(3, 3, 2, 3, b"\0\x1b" * 20, 1, chunk(b"PLTE", bytes(range(12)))))
    write("png", "index_beyond_palette", png(2, 1, 8, 3, b"\0\0\xff", 0, chunk(b"PLTE", b"\1\2\3")))
    write("png", "transparent_grey", png(2, 1, 8, 0, b"\0\1\2", 0, chunk(b"tRNS", b"\0\1")))
    write(
        "png", "profile_bomb", png(1, 1, 8, 0, b"\0\1", 0, chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(2_000_000))))
    )
    write("png", "text_bomb", png(1, 1, 8, 0, b"\0\1", 0, chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2_000_000)))))
    write("png", "too_much_data", png(1, 1, 8, 0, bytes(100_000)))
    whole = png(4, 4, 8, 2, (b"\1" + bytes(12)) * 4)
    for length in (8, 20, len(whole) // 2, len(whole) - 12):
        write("png", f"cut_at_{length}", whole[:length])


def safetensors():
    def file(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    seven = bytes(range(7))
    for name, content in {
        "good": file(
            {"__metadata__": {"a": "b"}, "w": tensor("F32", [1, 1], 0, 4), "b": tensor("U8", [3], 4, 7)}, seven
        ),
        "no_tensor": file({}),
        "scalar_and_nothing": file({"s": tensor("I8", [], 0, 1), "n": tensor("F64", [0, 9], 1, 1)}, b"\1"),
        "overlap": file({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 3, 7)}, seven),
        "hole": file({"a": tensor("U8", [3], 0, 3), "b": tensor("U8", [3], 4, 7)}, seven),
        "beyond_the_end": file({"a": tensor("U8", [9], 0, 9)}, seven),
        "backwards": file({"a": tensor("U8", [0], 7, 0)}, seven),
        "left_over": file({"a": tensor("U8", [3], 0, 3)}, seven),
        "overflow": file({"a": tensor("F64", [2**61, 8], 0, 0)}),
        "overflow_to_the_size": file({"a": tensor("U8", [2**33, 2**31 + 1, 7], 0, 7)}, seven),
        "zero_and_overflow": file({"a": tensor("F64", [2**62, 2**62, 0], 0, 0)}),
        "negative": file({"a": tensor("U8", [-7], 0, 7)}, seven),
        "key_twice": file(
            b'{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]},'
            b'"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}}',
            seven,
        ),
        "deep": file(b'{"a":' * 1000),
        "deep_lists": file(b'{"a":' + b"[" * 3000),
        "not_utf8": file(b'{"\xff":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}}', seven),
        "huge_header": file({}, b"", 2**63),
        "header_of_100_mb": file({}, b"", 100_000_000),
        "short": b"\7\0\0",
        "pickle": b"\x80\x02}q\x00.",
        "zip": b"PK\x03\x04" + bytes(26),
        "padded": file(b"{}" + b" " * 6),
    }.items():
        write("safetensors", name, content)


def programs():
    """Programs of torch.export, as parts: see program.cpp."""

    def tensor(*sizes):
        def size(value):
            return {"as_int": value} if isinstance(value, int) else {"as_expr": {"expr_str": value}}

        return {"dtype": 7, "sizes": [size(value) for value in sizes]}

    def value(name):
        return {"as_tensor": {"name": name}}

    def node(target, inputs, *outputs):
        inputs = [{"name": name, "arg": argument, "kind": 1} for name, argument in inputs.items()]
        stack = {"nn_module_stack": "L__self__,,a.Net;L__self__net,net,b.Linear"}
        return {"target": target, "inputs": inputs, "outputs": list(outputs), "metadata": stack}

    def graph(nodes, inputs=("p", "x"), output="y"):
        names = {"p": tensor(2, 3), "x": tensor("s0", 3), "y": tensor("s0", 2)}
        return {
            "inputs": [value(name) for name in inputs],
            "outputs": [value(output)],
            "nodes": nodes,
            "tensor_values": names,
        }

    def program(nodes, specs=None, major=8, **of_graph):
        specs = specs or [
            {"parameter": {"arg": {"name": "p"}, "parameter_name": "net.weight"}},
            {"user_input": {"arg": value("x")}},
        ]
        signature = {"input_specs": specs, "output_specs": [{"user_output": {"arg": value("y")}}]}
        module = {"graph": graph(nodes, **of_graph), "signature": signature}
        return {"graph_module": module, "schema_version": {"major": major, "minor": 17}, "torch_version": "2.11.0"}

    def weights(sizes=(2, 3), strides=(3, 1), offset=0, **more):
        meta = {"dtype": 7, "requires_grad": True, "storage_offset": {"as_int": offset}}
        meta |= {"sizes": [{"as_int": s} for s in sizes], "strides": [{"as_int": s} for s in strides]}
        return {"config": {"net.weight": {"path_name": "w", "use_pickle": False, "tensor_meta": meta} | more}}

    def parts(model, config, data=bytes(24)):
        texts = [json.dumps(part).encode() if isinstance(part, dict) else part for part in (model, config)]
        return b"\0".join([*texts, data])

    linear = node("torch.ops.aten.linear.default", {"input": value("x"), "weight": value("p")}, value("y"))
    kinds = {
        "as_none": True, "as_int": -3, "as_ints": [1, 2], "as_float": "NaN", "as_floats": [0.5], "as_bool": True,
        "as_string": "sum", "as_scalar_type": 7, "as_layout": 7, "as_memory_format": 2, "as_tensors": [{"name": "x"}],
        "as_device": {"type": "cpu", "index": None}, "as_sym_int": {"as_int": 4},
        "as_sym_ints": [{"as_int": 4}, {"as_name": "x"}], "as_optional_tensors": [{"as_none": True}, value("x")],
    }  # fmt: skip
    arguments = {f"a{i}": {kind: content} for i, (kind, content) in enumerate(kinds.items())}
    every_kind = node("torch.ops.aten.any.default", arguments, value("y"))
    inner = {"as_graph": {"name": "g", "graph": graph([linear])}}
    wrap = "torch.ops.higher_order.wrap_with_set_grad_enabled"
    relu = node("torch.ops.aten.relu_.default", {"self": value("x")})
    nested_size = {"as_int": 1}
    for _ in range(150):
        nested_size = {"as_sym_int": nested_size}
    check = node("torch.ops.aten._assert_scalar.default", {"self": value("x")}, value("c"))
    linear_of_check = node("torch.ops.aten.linear.default", {"input": value("c"), "weight": value("p")}, value("y"))
    nested = node(wrap, {"": {"as_bool": False}, "g": inner, "p": value("p"), "x": value("x")}, value("y"))
    deep = graph([linear])
    for _ in range(12):
        deep = graph([node(wrap, {"g": {"as_graph": {"name": "g", "graph": deep}}}, value("y"))])
    for name, content in {
        "good": parts(program([linear]), weights()),
        "every_kind": parts(program([every_kind]), weights()),
        "nested": parts(program([nested]), weights()),
        "nested_too_deep": parts(program(deep["nodes"]), weights()),
        "other_version": parts(program([linear], major=9), weights()),
        "used_before": parts(program([linear], inputs=("x",)), weights()),
        "defined_twice": parts(program([linear, linear]), weights()),
        "nothing": parts({}, {}),
        "deep": parts(b'{"graph_module":' + b"[" * 3000, weights()),
        "many_levels": parts(b'{"graph_module":' + b'{"as_sym_int":' * 3000 + b"1" + b"}" * 3001, weights()),
        "beyond_the_end": parts(program([linear]), weights(offset=1)),
        "overflow": parts(program([linear]), weights(sizes=(2**62, 2**62), strides=(2**62, 2**62))),
        "negative": parts(program([linear]), weights(sizes=(-2, 3))),
        "repeated_element": parts(program([linear]), weights(sizes=(2**20, 2**20), strides=(0, 0))),
        "negative_after_empty": parts(program([linear]), weights(sizes=(0, -3))),
        "sizes_within_sizes": parts(program([node("a.b", {"n": nested_size}, value("y"))]), weights()),
        "no_outputs": parts(program([relu], output="x"), weights()),
        "used_check": parts(program([check, linear_of_check]), weights()),
        "empty_tensor": parts(program([linear]), weights(sizes=(0, 3)), b""),
        "pickle": parts(program([linear]), weights(use_pickle=True)),
        "other_folder": parts(program([linear]), weights(path_name="../constants/m_constants_config.json")),
        "zip": b"PK\x03\x04" + bytes(26),
        "pointer": b"version https://git-lfs.github.com/spec/v1\n",
    }.items():
        write("program", name, content)


def manifests():
    def manifest(
        step="1234",
        files='{\n    "model.safetensors": {\n      "bytes": 12,\n      "xxh3": "0123456789abcdef"\n    }\n  }',
        version="1",
    ):
        return (
            f'{{\n  "format_version": {version},\n  "step": {step},\n  "world_size": 1,\n'
            '  "versions": {\n    "trainopt": "0.1.0"\n  },\n'
            f'  "files": {files},\n  "xxh3": "0000000000000000"\n}}\n'
        )

    for name, text in {
        "good": manifest(),
        "no_files": manifest(files="{}"),
        "negative": manifest("-1"),
        "too_large": manifest("9223372036854775808"),
        "fraction": manifest("1.5"),
        "other_version": manifest(version="2"),
        "version_is_a_map": manifest(version='{"a": [1]}'),
        "outside": manifest(files='{"../x": {"bytes": 1, "xxh3": "0123456789abcdef"}}'),
        "key_twice": manifest().replace('"world_size": 1', '"world_size": 1,\n  "world_size": 2'),
        "deep": '{"a":' * 1000,
        "deep_lists": '{"a":' + "[" * 3000,
        "list": "[]",
        "cut": manifest()[:100],
        "not_utf8": b'{"\xff": 1}',
        "empty": "",
    }.items():
        write("manifest", name, text)


def texts():
    def seed(tokens, ends=(), bits=0):
        packed = struct.pack(f"<{len(ends)}Q", *ends)
        return bytes([bits, len(packed)]) + packed + tokens

    def headed(magic, version, count, tokens):
        return struct.pack("<256i", magic, version, count, *[0] * 253) + tokens

    short = struct.pack("<9H", *range(9))
    for name, content in {
        "raw": seed(short, (4, 9)),
        "raw_32": seed(struct.pack("<4I", 0, 70000, 3, 2**32 - 1), (2, 4), 2),
        "gpt2": seed(headed(20240520, 1, 9, short), (2, 9), 1),
        "llama3": seed(headed(20240801, 7, 2, struct.pack("<2I", 1, 2)), (2,)),
        "other_version": seed(headed(20240520, 2, 9, short)),
        "bits_contradict": seed(headed(20240520, 1, 9, short), (9,), 2),
        "count_too_large": seed(headed(20240520, 1, 10, short)),
        "count_negative": seed(headed(20240801, 7, -1, short)),
        "header_cut": seed(headed(20240520, 1, 9, b"")[:1000]),
        "odd_length": seed(short + b"x", (9,)),
        "outside_vocabulary": seed(struct.pack("<2H", 1, 65535), (2,)),
        "empty": seed(b""),
        "empty_document": seed(short, (4, 4, 9)),
        "descending": seed(short, (6, 4, 9)),
        "beyond": seed(short, (4, 2**63)),
        "not_to_the_end": seed(short, (4, 8)),
    }.items():
        write("text", name, content)


def packed_files():
    """The first byte tells the target to make the checksums fit; here they are zeros."""

    def pack(records, kind=1, height=0, width=0, names=b"a\0b\0", classes=2, images=None, entries_at=None, shards=1):
        start = b"TRNOPACK" + bytes(56)
        places = [64 + sum(len(record) for record in records[:i]) for i in range(len(records))]
        entries = b"".join(
            struct.pack("<qIiQ", place, len(record), i % 2, 0)
            for i, (place, record) in enumerate(zip(places, records, strict=True))
        )
        body = start + b"".join(records)
        body += bytes(-len(body) % 8)
        numbers = (images or len(records), height, width, classes, entries_at or len(body), len(names))
        trailer = struct.pack("<8sII6qQIIQQ", b"TRNOPEND", 1, kind, *numbers, 0, 0, shards, 0, 0)
        return b"\1" + body + entries + names + trailer

    files = [b"\xff\xd8\xff", b"0123456"]
    for name, content in {
        "files": pack(files),
        "pixels": pack([bytes(range(12)), bytes(12)], kind=0, height=2, width=2),
        "no_names": pack(files, names=b""),
        "one_name": pack(files, names=b"a\0"),
        "name_not_ended": pack(files, names=b"a\0b"),
        "too_many_images": pack(files, images=2**60),
        "entries_at_the_end": pack(files, entries_at=2**62),
        "one_class": pack(files, classes=1),
        "checksums_do_not_fit": b"\0" + pack(files)[1:],
        "cut": pack(files)[:-1],
    }.items():
        write("packed", name, content)


def tar_files():
    """The first byte tells the target what the others are, and whether to make the headers' sums fit."""

    def tar(members, format=tarfile.USTAR_FORMAT, pax=None, types=()):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=format, pax_headers=pax) as archive:
            for name, content in members:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                member.type = dict(types).get(name, tarfile.REGTYPE)
                archive.addfile(member, io.BytesIO(content))
        written = file.getvalue().rstrip(b"\0")
        return b"\1" + written + bytes(-len(written) % 512 + 1024)  # without tarfile's 10 KiB

    sample = [("a.jpg", b"image"), ("a.cls", b"7")]
    links = [("a.jpg", tarfile.SYMTYPE)]
    for name, content in {
        "one_sample": tar(sample),
        "long_name_gnu": tar([("n" * 150 + ".jpg", b"x"), ("n" * 150 + ".cls", b"0")], tarfile.GNU_FORMAT),
        "long_name_pax": tar([("n" * 150 + ".jpg", b"x"), ("n" * 150 + ".cls", b"0")], tarfile.PAX_FORMAT),
        "prefix": tar([("d" * 90 + "/" + "n" * 90 + ".jpg", b"x")]),
        "global_header": tar(sample, tarfile.PAX_FORMAT, {"comment": "x"}),
        "link": tar(sample, types=links),
        "large_label": tar([("a.jpg", b"x"), ("a.cls", b"99999999999")]),
        "cut": tar(sample)[:-1500],
        "index": b"\0" + b"0" * 16 + b'\n{"format":"trainopt tar index 1","bytes":1048576,"samples":[[0,5,1,"a"]]}\n',
    }.items():
        write("tar", name, content)


def answers_of_s3():
    def listed(content):
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{content}</ListBucketResult>'
        )

    def objects(key):
        return f"<Contents><Key>{key}</Key><Size>7</Size><ETag>&quot;x&quot;</ETag></Contents>"

    last = "<IsTruncated>false</IsTruncated>"
    for name, text in {
        "one": listed(objects("a/b") + last),
        "continued": listed(
            objects("a") + "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
        ),
        "encoded": listed("<EncodingType>url</EncodingType>" + objects("a%2Fb+%00") + last),
        "in_parts": listed(objects("a<!-- b --><![CDATA[c]]>d") + last),
        "bomb": '<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + listed(objects("&b;") + last),
        "error": "<Error><Code>NoSuchKey</Code><Message>m</Message><Region>r</Region><RequestId>1</RequestId></Error>",
    }.items():
        write("s3_xml", name, text)


if __name__ == "__main__":
    images, others = (cifar10, jpegs, pngs), (texts, packed_files, tar_files, answers_of_s3)
    for make in (recipes, *images, safetensors, programs, manifests, *others):
        make()
