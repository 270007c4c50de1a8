//! Pages of the documentation: their blocks of code, the commands in these, and pages whose blocks are run as one script.

/// A block of code in a page.
#[derive(Debug)]
pub struct CodeBlock<'p> {
    /// The number of its first line in the page, from 1.
    pub line: usize,
    /// What its fence says of it, such as `sh`. `None` for a block that is indented by four spaces.
    pub info: Option<&'p str>,
    /// Its lines, without the indentation of the block.
    pub lines: Vec<&'p str>,
}

/// A command in a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// The number of its first line in the page, from 1.
    pub line: usize,
    /// The command in one line, without a prompt and a comment at its end.
    pub text: String,
}

/// Languages of blocks in which no commands are.
const NOT_SHELL: [&str; 5] = ["toml", "ini", "rust", "json", "text"];

/// The blocks of code of a page, in their order.
pub fn blocks(page: &str) -> Vec<CodeBlock<'_>> {
    let mut blocks: Vec<CodeBlock<'_>> = Vec::new();
    let mut lines = (1..).zip(page.lines()).peekable();
    let mut after_blank = true;
    while let Some((number, line)) = lines.next() {
        let indentation = line.len() - line.trim_start_matches(' ').len();
        let unindented = |line: &str| line.len() - line.trim_start_matches(' ').len() < 4 && !line.trim().is_empty();
        if let Some(info) = line.trim_start_matches(' ').strip_prefix("```") {
            let mut block = CodeBlock { line: number + 1, info: Some(info.trim()), lines: Vec::new() };
            for (_, line) in lines.by_ref().take_while(|(_, line)| line.trim() != "```") {
                block.lines.push(line.get(indentation..).unwrap_or_default());
            }
            blocks.push(block);
        } else if after_blank && indentation >= 4 && !line.trim().is_empty() {
            let mut block = CodeBlock { line: number, info: None, lines: vec![&line[4..]] };
            while let Some((_, line)) = lines.next_if(|(_, line)| !unindented(line)) {
                block.lines.push(line.get(4..).unwrap_or_default());
            }
            blocks.push(block);
        }
        after_blank = line.trim().is_empty();
    }
    blocks
}

impl CodeBlock<'_> {
    /// The name of the file that the block is, if it is a whole one: behind the language (`toml FILE`), or in a comment in
    /// the first line (`# FILE`).
    pub fn file(&self) -> Option<&str> {
        let behind = self.info.and_then(|info| info.split_once(' ')).map(|(_, file)| file);
        let comment =
            || self.lines.first()?.strip_prefix("# ").filter(|name| !name.contains(' ') && name.contains('.'));
        behind.or_else(comment)
    }

    /// The commands of the block.
    ///
    /// # Panics
    ///
    /// If the block has a language of which nothing is known here.
    pub fn commands(&self) -> Vec<Command> {
        let language = self.info.map_or("", |info| info.split(' ').next().unwrap_or_default());
        if NOT_SHELL.contains(&language) {
            return Vec::new();
        }
        assert!(matches!(language, "" | "sh"), "line {}: a block of `{language}`", self.line);
        // The first line that is no comment tells what a block without a language is.
        let is_shell = self.lines.iter().map(|line| line.trim()).find(|line| !line.starts_with('#'));
        let is_shell = is_shell.is_some_and(|first| first.starts_with("$ ") || looks_like_command(first));
        if language.is_empty() && !is_shell {
            return Vec::new();
        }
        let mut commands = Vec::new();
        let mut has_prompt = false;
        let mut lines = (self.line..).zip(&self.lines);
        while let Some((line, first)) = lines.next() {
            let mut text = first.trim().to_owned();
            while let Some(begin) = text.strip_suffix('\\') {
                let next = lines.next().map_or("", |(_, next)| next.trim());
                text = format!("{} {next}", begin.trim_end());
            }
            // Of a line with several blanks before it, as in tables of commands.
            let code = text.split("  #").next().unwrap_or_default().trim_end();
            let prompted = code.strip_prefix("$ ");
            has_prompt |= prompted.is_some() && language.is_empty();
            // Behind the first prompt everything without one is output.
            let is_command = match language {
                "sh" => !code.is_empty() && !code.starts_with('#'),
                _ => prompted.is_some() || !has_prompt && looks_like_command(code),
            };
            if is_command {
                commands.push(Command { line, text: prompted.unwrap_or(code).to_owned() });
            }
        }
        commands
    }
}

/// Whether a line of a block without a language, and without prompts, is a command: it begins with a program or a
/// variable, and is neither a drawing nor TOML.
fn looks_like_command(line: &str) -> bool {
    let is_name = |word: &str| word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter));
    let is_program = |word: &str| {
        let start = word.strip_prefix("./").unwrap_or(word);
        start.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '/') && is_name(word)
    };
    let mut rest = line.split(' ').skip_while(|word| word.split_once('=').is_some_and(|(name, _)| is_name(name)));
    let is_drawing = line.chars().any(|letter| ('\u{2500}'..='\u{25ff}').contains(&letter));
    let program = rest.next().unwrap_or_default();
    is_program(program) && !program.ends_with('/') && rest.next() != Some("=") && !is_drawing
}

/// The commands of a page, in their order.
pub fn commands(page: &str) -> Vec<Command> {
    blocks(page).iter().flat_map(CodeBlock::commands).collect()
}

/// Splits a command line as a shell does, up to a pipe, a redirection or a comment.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The blocks of a page as a script for bash. A block of TOML is written to the file that its first line names (`# FILE`),
/// a block of `sh` is run. The script ends at the first command that fails, and with it what runs in the background.
pub fn script(page: &str) -> String {
    let mut script = String::from("set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    for block in blocks(page) {
        let body = block.lines.join("\n");
        match block.info {
            Some("sh") => script += &format!("{body}\n"),
            Some("toml") => {
                let name = block.file().unwrap_or_else(|| panic!("a block of TOML without a name: {body}"));
                script += &format!("cat > {name} <<'END_OF_FILE'\n{body}\nEND_OF_FILE\n");
            }
            other => panic!("line {}: a block of `{other:?}`", block.line),
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

    /// The commands of a page, each with the number of its line.
    fn found(page: &str) -> Vec<(usize, String)> {
        commands(page).into_iter().map(|Command { line, text }| (line, text)).collect()
    }

    #[test]
    fn each_line_of_a_block_of_sh_is_a_command() {
        let page =
            "```sh\nkey=$(cat a)\n\n# a comment\nip link add \\\n    type veth  # a pair\n```\n\n```toml\na = 1\n```\n";
        assert_eq!(found(page), [(2, "key=$(cat a)".to_owned()), (5, "ip link add type veth".to_owned())]);
    }

    #[test]
    fn of_a_block_with_prompts_the_rest_is_output() {
        let page = "text\n\n    first one\n\n    $ second two\n    output here\n\n    more output\n    $ third\nend\n";
        let expected = [(3, "first one"), (5, "second two"), (9, "third")].map(|(line, text)| (line, text.to_owned()));
        assert_eq!(found(page), expected);
    }

    #[test]
    fn toml_drawings_and_text_are_no_commands() {
        for block in [
            "a ─▶ b",
            "key = 1",
            "[table]",
            "\"a -> b\",",
            "error: none",
            "@group - memlock 1",
            "-netdev x",
            "folder/ it",
        ] {
            assert!(found(&format!("text\n\n    {block}\n")).is_empty(), "{block}");
        }
        assert!(found("- item\n  - inner\n    goes on\n").is_empty());
        assert!(found("text\n\n    folder/\n      file\n").is_empty());
        for block in ["./a", "/bin/a b", "A=b c", "a.sh --x=1"] {
            assert_eq!(found(&format!("- text\n\n      {block}\n")), [(3, block.to_owned())]);
        }
    }

    #[test]
    fn whole_files_have_a_name() {
        let page =
            "```toml a.toml\nb = 1\n```\n```toml\n# b.toml\n```\n```toml\n# not a name.\n```\n```toml\na = 1\n```\n";
        let blocks = blocks(page);
        let files: Vec<_> = blocks.iter().map(CodeBlock::file).collect();
        assert_eq!(files, [Some("a.toml"), Some("b.toml"), None, None]);
        assert_eq!(blocks.iter().map(|block| block.line).collect::<Vec<_>>(), [2, 5, 8, 11]);
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(words("a --b 'c d' e=\"f \\\" | g"), ["a", "--b", "c d", "e=f \\"]);
        assert_eq!(words("a b#c # d"), ["a", "b#c"]);
    }
}
