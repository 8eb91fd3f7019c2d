"""One file per analysis; the file and its section in params.yaml are all that an analysis is.

``analyses/NAME.py`` holds

    Params                  a frozen dataclass: the section ``analyses.NAME`` of the parameters, which switches it on
    rows(source, params)    flat dicts about one source
    summary(frame)          flat finite numbers                                          -> summary.json, a DVC metric
    plots(frame)            tables by name                                               -> <name>.csv, plots/
    figures(frame, params)  matplotlib figures by name, "<what>-<suite>"                 -> figures/<name>.svg
    CAPTIONS                what to see in each figure, by <what>

Params lists the sources: ``checkpoints`` (suite -> indices) makes each source one ``registry.Checkpoint``, whose rows
are kept in a file of their own; ``suites`` (names) makes each source one ``registry.Suite``. ``frame`` holds the rows
of all sources. The report shows the first line of a file's docstring and its figures.

``analyses/common`` is what the analyses share, ``analyses/report`` the page about all of them.
"""
