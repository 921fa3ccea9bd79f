void soak(void); void soak(void) {}
