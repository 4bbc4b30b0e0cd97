"""The verbs: one module each, with HELP, `configure(parser)` and `execute(args) -> exit code`.

Modules are imported only when their verb is asked for, so that `torchsan explain` answers in a blink.
"""

VERBS = {
    "run": "run a program as python would, under the sanitizer",
    "check": "find hazards in source, without running it",
    "verify": "is a trace, script, export or ONNX of this model faithful to it?",
    "merge": "make one report of the records of several machines",
    "report": "show a report that --format json wrote, in another format",
    "lsp": "be a language server for editors",
    "fix": "propose the smallest edits, prove them by running, show a diff",
    "native": "build the native part of the recorder, which sees writes in torch's dispatcher",
    "explain": "tell about a rule: what it is, why, how to fix it",
}

RUNS_PROGRAMS = {"run", "verify", "fix"}
