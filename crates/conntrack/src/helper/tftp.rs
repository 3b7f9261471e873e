//! TFTP (RFC 1350): a request, which the server answers from a port of its own choosing.

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The client reads a file.
    Read,
    /// The client writes a file.
    Write,
}

/// The longest request that is looked at. RFC 2347 keeps requests with options below this.
const LONGEST: usize = 512;

/// Reads a request. The server's data comes from its address and any port to the address and port
/// that this came from. `None` if it is none, or not one as it should be.
pub fn request(payload: &[u8]) -> Option<Request> {
    let kind = match payload.first_chunk()? {
        [0, 1] => Request::Read,
        [0, 2] => Request::Write,
        _ => return None,
    };
    if payload.len() > LONGEST {
        return None;
    }
    let mut strings = payload[2..].split(|byte| *byte == 0);
    let (name, mode) = (strings.next()?, strings.next()?);
    // What is behind the last zero is nothing.
    let is_ended = payload.last() == Some(&0);
    let modes: [&[u8]; 3] = [b"netascii", b"octet", b"mail"];
    let is_mode = modes.iter().any(|known| mode.eq_ignore_ascii_case(known));
    (is_ended && !name.is_empty() && is_mode).then_some(kind)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(request(b"\0\x01boot.img\0octet\0"), Some(Request::Read));
        assert_eq!(request(b"\0\x02x\0NetASCII\0blksize\x001428\0"), Some(Request::Write));
        let wrong: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\x01",
            b"\0\x03x\0octet\0",
            b"\0\x01\0octet\0",
            b"\0\x01x\0octet",
            b"\0\x01x\0binary\0",
            b"\0\x01x\0",
            b"\x01\0x\0octet\0",
        ];
        for wrong in wrong {
            assert_eq!(request(wrong), None, "{wrong:?}");
        }
        let long = [b"\0\x01", &[b'x'; 600][..], b"\0octet\0"].concat();
        assert_eq!(request(&long), None);
    }
}
