//! Sequence numbers of TCP after a payload was made longer or shorter.

/// By how much the sequence numbers of one direction are shifted, before and behind the last place
/// where the length has changed. That is as much as there is at once: the next change is made when
/// the receiver has what came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceShift {
    /// The first sequence number of the last change, as its sender numbers.
    pub position: u32,
    /// The shift up to there.
    pub before: i32,
    /// The shift behind it.
    pub after: i32,
}

fn is_behind(sequence: u32, position: u32) -> bool {
    (sequence.wrapping_sub(position) as i32) > 0
}

impl SequenceShift {
    /// The payload of a segment that begins at `sequence` has become longer by `more` bytes. Sent
    /// again, it changes nothing.
    pub fn grow(&mut self, sequence: u32, more: i32) {
        let is_first = self.before == self.after;
        if is_first || is_behind(sequence, self.position) {
            *self = Self {
                position: sequence,
                before: self.after,
                after: self.after.wrapping_add(more),
            };
        }
    }

    /// What the receiver knows a sequence number of the sender as.
    pub fn sequence(&self, sequence: u32) -> u32 {
        let shift = match is_behind(sequence, self.position) {
            true => self.after,
            false => self.before,
        };
        sequence.wrapping_add_signed(shift)
    }

    /// What the sender knows a number as that the receiver acknowledges.
    pub fn acknowledgment(&self, acknowledgment: u32) -> u32 {
        let before = acknowledgment.wrapping_add_signed(self.before.wrapping_neg());
        match is_behind(before, self.position) {
            true => acknowledgment.wrapping_add_signed(self.after.wrapping_neg()),
            false => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        let mut shift = SequenceShift::default();
        assert_eq!((shift.sequence(5), shift.acknowledgment(5)), (5, 5));
        // A line of 20 bytes becomes 26 bytes long.
        let line = u32::MAX - 100;
        shift.grow(line, 6);
        shift.grow(line, 6);
        assert_eq!((shift.sequence(line), shift.sequence(line + 20)), (line, line + 26));
        assert_eq!(
            (shift.acknowledgment(line), shift.acknowledgment(line + 26)),
            (line, line + 20)
        );
        // One before it was sent again; another one becomes shorter, and the numbers go round.
        shift.grow(line - 50, 9);
        shift.grow(u32::MAX, -8);
        assert_eq!(shift.sequence(u32::MAX), 5);
        assert_eq!(shift.sequence(19), 17);
        assert_eq!(shift.acknowledgment(17), 19);
        assert_eq!(shift.acknowledgment(5), u32::MAX);
    }
}
