"""The verbs: one module each, with HELP, `configure(parser)` and `execute(args) -> exit code`.

Modules are imported only when their verb is asked for, so that `torchsan explain` answers in a blink.
"""

VERBS = {
    "run": "run a program as python would, under the sanitizer",
    "verify": "is a trace, script, export or ONNX of this model faithful to it?",
    "explain": "tell about a rule: what it is, why, how to fix it",
}
