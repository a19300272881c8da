// refork: n=400 x=n:in:index:5 y=n:out
void categories(int n, const int *x, int *y) {
    for (int i = 0; i < n; i++) {
        switch (x[i]) {
            case 0: y[i] = 7; break;
            case 1: y[i] = -1; break;
            case 2:
            case 3: y[i] = 2 * i; break;
            default: y[i] = 0;
        }
    }
}
