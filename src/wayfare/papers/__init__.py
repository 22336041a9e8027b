"""The papers' tables and claims, as a Python API; `wayfare reproduce`, `claims` and `study` print what it returns.

A recipe is a table of a paper: `[cells.NAME]` lists the settings in which a cell differs, and the published value. A
claim is a sentence of a paper about such cells, in `claims/PAPER.toml`.

    files           recipes and claims that come with Wayfare
    paper           what a recipe says about its paper: `Paper`, `Cell`, `Scale`
    plan            a recipe's cells as experiments at one scale: settings in layers
    reproduce       runs all cells of a recipe and compares them with the paper
    reproduction    that comparison: values, differences, orderings; for the terminal and the page
    claims          claims as data, and how they are read and checked
    catalogue       all claims with the recipes they are about
    sequential      when seeds are added to a claim and when it is decided
    verdicts        effect and interval of a claim from its runs, and whether it holds
    claim_runs      runs what claims need, and decides them
    claims_document verdicts as a table, and in words
    claims_results  verdicts as files
    claims_pages    pages made of these files, with a picture for each (claims_picture)
    study           FedTour's study of merged models (Sect. IV)

The path of one table: `reproduce` reads a `Plan`, gives its experiments to `runner.run_all`, reads the run folders back
as records, groups them by cell (`pages.compare`), and makes a `Reproduction` of them and the paper's values.
"""
