// refork: n=36 seq=n:in:index:4 table=n*n:inout:const:0
void folding(int n, const int *seq, int *table) {
    for (int i = n - 1; i >= 0; i--)
        for (int j = i + 1; j < n; j++) {
            int best = table[i * n + j - 1];
            if (i + 1 < n && table[(i + 1) * n + j] > best) best = table[(i + 1) * n + j];
            if (i + 1 < n) {
                int pair = table[(i + 1) * n + j - 1] + (i < j - 1 && seq[i] + seq[j] == 3 ? 1 : 0);
                if (pair > best) best = pair;
            }
            for (int k = i + 1; k < j; k++) {
                int both = table[i * n + k] + table[(k + 1) * n + j];
                best = both > best ? both : best;
            }
            table[i * n + j] = best;
        }
}
