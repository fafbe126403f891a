//! Running a program with the recorder in it, and making a recording of what its processes have written.
