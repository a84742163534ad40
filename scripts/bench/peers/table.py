"""Names of the ways in ways.py, for scripts that do not import PyTorch: name: (function, layout, type). The most
important ways come first, in case time runs out."""

ON_GPU = {
    "eager channels-last bf16": ("eager", "channels-last", "bf16"),
    "graph channels-last bf16": ("recorded", "channels-last", "bf16"),
    "compile channels-last bf16": ("compiled", "channels-last", "bf16"),
    "compile max-autotune channels-last bf16": ("compiled_max_autotune", "channels-last", "bf16"),
    "eager channels-last fp16": ("eager_scaled", "channels-last", "fp16"),
    "eager nchw fp32": ("eager", "nchw", "fp32"),
}
ON_CPU = {
    "plain nchw fp32": ("plain", "nchw", "fp32"),
    "ipex channels-last bf16": ("ipex", "channels-last", "bf16"),
    "ipex channels-last fp32": ("ipex", "channels-last", "fp32"),
} | {
    f"{name} {layout} {dtype}": (function, layout, dtype)
    for name, function in (("eager", "eager"), ("compile", "compiled"))
    for layout in ("channels-last", "nchw")
    for dtype in ("bf16", "fp32")
}
