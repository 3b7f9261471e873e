//! What was done, for programs: a JSON object that is written as it is made.

use core::fmt::{self, Display, Write};

/// The members of an object, by name.
#[derive(Clone, Debug, Default)]
pub struct Members(String);

/// What may be the value of a member.
pub trait Json {
    /// Writes it.
    fn write(&self, text: &mut String);
}

impl Members {
    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Json) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        name.write(&mut self.0);
        self.0.push(':');
        value.write(&mut self.0);
        self
    }

    /// With the text form of a value.
    #[must_use]
    pub fn shown(self, name: &str, value: impl Display) -> Self {
        self.with(name, value.to_string())
    }

    /// With the text form of a value that may be absent.
    #[must_use]
    pub fn some(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.shown(name, value),
            None => self,
        }
    }
}

/// The object.
impl Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0)
    }
}

impl Json for Members {
    fn write(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(text, "{self}");
    }
}

impl Json for str {
    fn write(&self, text: &mut String) {
        text.push('"');
        for character in self.chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                control if control.is_control() => {
                    let mut units = [0; 2];
                    for unit in control.encode_utf16(&mut units) {
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
                plain => text.push(plain),
            }
        }
        text.push('"');
    }
}

impl<T: Json + ?Sized> Json for &T {
    fn write(&self, text: &mut String) {
        (**self).write(text);
    }
}

impl Json for String {
    fn write(&self, text: &mut String) {
        self.as_str().write(text);
    }
}

impl<T: Json> Json for [T] {
    fn write(&self, text: &mut String) {
        text.push('[');
        for (at, element) in self.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            element.write(text);
        }
        text.push(']');
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, text: &mut String) {
        self.as_slice().write(text);
    }
}

macro_rules! as_shown {
    ($($type:ty),+) => {$(
        impl Json for $type {
            fn write(&self, text: &mut String) {
                let _ = write!(text, "{self}");
            }
        }
    )+};
}

as_shown!(bool, u8, u16, u32, u64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_an_object_whatever_is_in_them() {
        assert_eq!(Members::default().to_string(), "{}");
        let inner = Members::default().with("a", 1_u8);
        let all = Members::default()
            .with("text", "a\"b\\c\n\u{7f}ö\u{9f}")
            .with("of", vec![inner.clone(), inner])
            .with("is", true)
            .with("none", Vec::<u16>::new())
            .shown("shown", 7)
            .some("some", Some("x"))
            .some("absent", None::<u8>);
        assert_eq!(
            all.to_string(),
            r#"{"text":"a\"b\\c\u000a\u007fö\u009f","of":[{"a":1},{"a":1}],"is":true,"none":[],"shown":"7","some":"x"}"#
        );
    }
}
