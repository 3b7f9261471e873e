//! The reader of configuration files on one input.

use control::Diagnostic;

/// Reads `bytes` as a configuration file. Returns how many ports it asks for or, if it is refused,
/// the lines of its errors.
///
/// # Errors
/// The lines that are wrong.
///
/// # Panics
/// If the crate breaks a promise.
pub fn examine(bytes: &[u8]) -> Result<usize, Vec<usize>> {
    let text = String::from_utf8_lossy(bytes);
    let examine_place = |diagnostic: &Diagnostic| {
        assert_eq!(diagnostic.file, "fuzz.toml");
        assert!(!diagnostic.message.is_empty());
        let line = diagnostic.line.checked_sub(1).expect("lines begin with 1");
        let line = text.split('\n').nth(line).unwrap_or_else(|| panic!("no line: {diagnostic}"));
        let columns = 1..=line.chars().count() + 1;
        assert!(columns.contains(&diagnostic.column), "no column: {diagnostic}");
        diagnostic.line
    };
    match control::load("fuzz.toml", &text) {
        Ok(config) => {
            config.notes.iter().for_each(|note| _ = examine_place(note));
            assert_eq!(control::load("fuzz.toml", &text).as_ref(), Ok(&config));
            assert!(!config.ports.is_empty(), "a gateway without ports");
            Ok(config.ports.len())
        }
        Err(errors) => {
            assert!((1..=1001).contains(&errors.0.len()), "{} errors", errors.0.len());
            assert!(errors.0.is_sorted_by_key(|error| (error.line, error.column)), "{errors}");
            Err(errors.0.iter().map(examine_place).collect())
        }
    }
}
