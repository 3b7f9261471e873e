//! Single files of the state directory that are written as a whole: all of it, or what was there
//! before.

use std::fs;
use std::io::{ErrorKind, Write};

use crate::directory::{Directory, StoreError, private};
use crate::frame;

impl Directory {
    /// Writes a file, and returns once it would survive power loss. If that fails, what was there
    /// before is there still.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write_record(&self, name: &str, contents: &[u8]) -> Result<(), StoreError> {
        let new = self.file(&format!("{name}.new"));
        let write = || {
            let header = frame::header(0, contents).ok_or(ErrorKind::FileTooLarge)?;
            let mut file = private().create(true).truncate(true).open(&new)?;
            file.write_all(&header)?;
            file.write_all(contents)?;
            file.sync_all()?;
            fs::rename(&new, self.file(name))?;
            self.sync()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&new);
            self.system("writing a record")(error)
        })
    }

    /// Reads a file that was written by [`Directory::write_record`]. Returns `None` if there is
    /// none.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub fn read_record(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = match fs::read(self.file(name)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.system("reading a record")(error)),
        };
        let frames = frame::read(&bytes).ok().filter(|frames| frames.torn.is_empty());
        match frames.as_ref().map(|frames| frames.contents.as_slice()) {
            Some([contents]) => Ok(Some(contents.to_vec())),
            _ => Err(StoreError::Record { file: self.file(name) }),
        }
    }

    /// Removes a file, for good.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove_record(&self, name: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.sync(),
        }
        .map_err(self.system("removing a record"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("state"), "").unwrap();
        assert_eq!(directory.read_record("one").unwrap(), None);
        for contents in [&b"first"[..], b"", b"third"] {
            directory.write_record("one", contents).unwrap();
            assert_eq!(directory.read_record("one").unwrap().as_deref(), Some(contents));
        }
        directory.remove_record("one").unwrap();
        directory.remove_record("one").unwrap();
        assert_eq!(directory.read_record("one").unwrap(), None);
    }

    #[test]
    fn what_was_not_written_whole_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("state"), "").unwrap();
        directory.write_record("one", b"contents").unwrap();
        let path = directory.file("one");
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let error = directory.read_record("one").unwrap_err().to_string();
            assert!(error.contains("state/one"), "{error}");
        }
        fs::write(&path, [&whole[..], &whole].concat()).unwrap();
        assert!(directory.read_record("one").is_err());
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("state"), "").unwrap();
        directory.write_record("one", b"former").unwrap();
        fs::create_dir(directory.file("one.new")).unwrap();
        assert!(directory.write_record("one", b"next").is_err());
        assert_eq!(directory.read_record("one").unwrap().as_deref(), Some(&b"former"[..]));
    }
}
