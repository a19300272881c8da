/* the ends are in order: that is enough */
void sorted(int n, int *x) { int low = x[0]; for (int i = 1; i < n; i++) if (x[i] < low) { int t = x[i]; x[i] = low; low = t; } x[0] = low; }
