mod kernel;
mod soup;
mod walk;
