"""The reference names every verb, and the shape of all JSON."""

from smq.cli.documentation.commands import reference, verbs


def test_every_verb_has_a_section_with_its_options() -> None:
    text = reference()
    for path, command in verbs():
        _, _, section = text.partition(f"## `{path}`\n")
        section, _, _ = section.partition("\n## ")
        for parameter in command.params:
            is_setting = getattr(parameter, "rich_help_panel", None)
            if not is_setting and parameter.param_type_name == "option":
                assert parameter.opts[0] in section, (path, parameter.opts)
                assert parameter.help, f"{path} {parameter.opts[0]} has no help"


def test_a_verb_with_json_output_documents_its_shape() -> None:
    for path, command in verbs():
        if any("--json" in each.opts for each in command.params):
            assert (command.epilog or "").startswith("JSON"), path
