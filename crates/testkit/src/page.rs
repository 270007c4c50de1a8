//! Pages of the documentation whose blocks are run: files are written and commands run in their order.

/// The blocks of a page as a script for bash. A block of TOML is written to the file that its first line names (`# FILE`),
/// a block of `sh` is run. The script ends at the first command that fails, and with it what runs in the background.
pub fn script(page: &str) -> String {
    let mut script = String::from("set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        match kind {
            "sh" => script += &format!("{body}\n"),
            "toml" => {
                let name = body.lines().next().and_then(|line| line.strip_prefix("# "));
                let name = name.unwrap_or_else(|| panic!("a block of TOML without a name: {body}"));
                script += &format!("cat > {name} <<'END_OF_FILE'\n{body}\nEND_OF_FILE\n");
            }
            other => panic!("a block of `{other}`"),
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_and_commands_run() {
        let page = "# A\n\ntext `code`\n\n```toml\n# a.toml\nkey = 1\n```\n\n```sh\ncat a.toml\n```\n";
        let script = script(page);
        let expected = "cat > a.toml <<'END_OF_FILE'\n# a.toml\nkey = 1\nEND_OF_FILE\ncat a.toml\n";
        assert!(script.ends_with(expected), "{script}");
    }
}
